"""Payment card numbers, recognised by issuer, length and check digit, ungrouped or grouped as on a card."""

import re
from collections.abc import Iterator

from counterpoint.guard.automata import compiled, spans
from counterpoint.guard.kinds import Span


def luhn(digits: str) -> bool:
    """Whether the last digit is the check digit of the others (ISO/IEC 7812-1)."""
    doubled = (int(digit) * 2 for digit in digits[-2::-2])
    return (sum(map(int, digits[-1::-2])) + sum(value - 9 if value > 9 else value for value in doubled)) % 10 == 0


_ISSUERS = (
    (re.compile(r"4"), {16, 19}),
    (re.compile(r"5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720"), {16}),
    (re.compile(r"3[47]"), {15}),
    (re.compile(r"30[0-5]|36|3[89]"), {14}),
    (re.compile(r"6011|64[4-9]|65|62|35(?:2[89]|[3-8])"), {16, 17, 18, 19}),
)


def is_card_number(digits: str) -> bool:
    """Whether the digits are a card number by issuer prefix, length and check digit."""
    return any(prefix.match(digits) and len(digits) in lengths for prefix, lengths in _ISSUERS) and luhn(digits)


_GROUPED = compiled(
    rb"(?:^|[^\w])(\d{4}(?:-\d{4}){3}|\d{4}(?: \d{4}){3}|\d{4}-\d{6}-\d{4,5}|\d{4} \d{6} \d{4,5}|\d{14,19})"
)
_BARE = compiled(rb"(?:^|[^\w])(\d{12,19})")
_CARD = compiled(rb"(?i)(?:^|[^a-z])(?:cards?|pan|visa|mastercard|maestro|amex|jcb|discover|diners)(?:[^a-z]|$)")
_ACCOUNT = compiled(rb"\b[A-Za-z]{2}\d\d $")
"""The start of an IBAN, whose groups may look like a card's."""
_BEFORE = 64


def find_cards(text: bytes) -> Iterator[Span]:
    """Yield the card numbers in `text`. After a word for a card any issuer and length counts."""
    for start, end in spans(_GROUPED, text):
        rest_of_account = b" " in text[start:end] and _ACCOUNT.search(text[max(0, start - 6) : start]) is not None
        if not rest_of_account and _stands_alone(text, start, end) and is_card_number(_digits(text[start:end])):
            yield start, end
    if _CARD.search(text) is not None:
        for start, end in spans(_BARE, text):
            before = text[max(0, start - _BEFORE) : start]
            digits = _digits(text[start:end])
            spoken = _CARD.search(before[before.rfind(b"\n") + 1 :]) is not None
            if spoken and _stands_alone(text, start, end) and luhn(digits) and len(set(digits)) > 2:
                yield start, end


def _digits(number: bytes) -> str:
    return number.translate(None, b" -").decode()


def _stands_alone(text: bytes, start: int, end: int) -> bool:
    """Whether the digits are not part of an identifier, a longer number or a decimal fraction."""
    before, after = text[max(0, start - 2) : start], text[end : end + 2]
    return not (
        (before[-1:] == b"." and before[:1].isdigit())
        or after[:1].isalnum()
        or after[:1] == b"_"
        or (after[:1] == b"." and after[1:].isdigit())
    )

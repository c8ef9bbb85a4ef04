"""Personal identification numbers, recognised by check digits or rules of their issuers.

A number without a check digit counts only when grouped in its usual format, or after its name.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from counterpoint.guard.automata import compiled
from counterpoint.guard.kinds import Span

_AROUND = 48
_NIF_LETTERS = "TRWAGMYFPDXBNJZSQVHLCKE"
_UNITS = frozenset("BKMGTPDHS")
"""Letters that may be units of size or time, which are control letters only with a cue."""
_DAY = compiled(rb"(?:19|20)\d{2}(?:0[1-9]|1[0-2])(?:[0-2]\d|3[01])[A-Z]$")
"""A date without dashes, as in logs before a T or Z."""
_NIF_PREFIXES = {"X": "0", "Y": "1", "Z": "2"}
_NRIC_LETTERS = {"S": "JZIHGFEDCBA", "T": "GFEDCBAJZIH", "F": "XWUTRQPNMLK", "G": "RQPNMLKXWUT", "M": "KLJNPQRTUWX"}
_TFN_WEIGHTS = (1, 4, 3, 7, 5, 8, 6, 9, 10)
_PESEL_WEIGHTS = (1, 3, 7, 9, 1, 3, 7, 9, 1, 3)


def is_us_ssn(digits: str) -> bool:
    """Whether nine digits can be a US social security number: no area 000, 666 or 9xx, no group 00, no serial 0000.

    Rules of the SSA since 2011. Ascending or descending digits are an example.
    """
    area, group, serial = digits[:3], digits[3:5], digits[5:]
    return area not in ("000", "666") and area[0] != "9" and group != "00" and serial != "0000"


def is_us_itin(digits: str) -> bool:
    """Whether nine digits can be a US taxpayer number: 9xx and a group that the IRS issues."""
    group = int(digits[3:5])
    return digits[0] == "9" and (50 <= group <= 65 or 70 <= group <= 88 or 90 <= group <= 92 or 94 <= group <= 99)


def is_uk_nhs(digits: str) -> bool:
    """Whether the tenth digit of an NHS number is its check digit (modulo 11)."""
    rest = -sum(int(digit) * (10 - place) for place, digit in enumerate(digits[:9])) % 11
    return rest == int(digits[9]) and len(set(digits)) > 1


def is_es_nif(word: str) -> bool:
    """Whether the letter of a Spanish NIF or NIE is its check letter (modulo 23)."""
    word = word.upper()
    digits = _NIF_PREFIXES.get(word[0], word[0]) + word[1:-1]
    return word[-1] == _NIF_LETTERS[int(digits) % 23]


def is_it_fiscal_code(word: str) -> bool:
    """Whether a word in the form of an Italian fiscal code has a valid day: 01 to 31, for women plus 40."""
    return 1 <= int(word[9:11]) % 40 <= 31 and int(word[9:11]) <= 71


def is_sg_nric(word: str) -> bool:
    """Whether the last letter of a Singaporean NRIC or FIN is its check letter."""
    word = word.upper()
    total = sum(int(digit) * weight for digit, weight in zip(word[1:8], (2, 7, 6, 5, 4, 3, 2), strict=True))
    letters = _NRIC_LETTERS[word[0]]
    return word[8] == letters[(total + (3 if word[0] == "M" else 0)) % 11 if word[0] != "M" else 10 - (total + 3) % 11]


def is_in_aadhaar(digits: str) -> bool:
    """Whether the last of twelve digits is the Verhoeff check digit of the others."""
    check = 0
    for place, digit in enumerate(reversed(digits)):
        check = _dihedral(check, _permuted(place % 8, int(digit)))
    return check == 0 and digits != digits[::-1]


def is_pl_pesel(digits: str) -> bool:
    """Whether eleven digits are a Polish PESEL: a valid date, and a check digit."""
    month, day = int(digits[2:4]) % 20, int(digits[4:6])
    total = sum(int(digit) * weight for digit, weight in zip(digits, _PESEL_WEIGHTS, strict=False))
    return 1 <= month <= 12 and 1 <= day <= 31 and (total + int(digits[10])) % 10 == 0


def is_au_tfn(digits: str) -> bool:
    """Whether nine digits are an Australian tax file number: their weighted sum is a multiple of 11."""
    return sum(int(digit) * weight for digit, weight in zip(digits, _TFN_WEIGHTS, strict=True)) % 11 == 0


def _dihedral(left: int, right: int) -> int:
    if left < 5:
        return (left + right) % 5 + (right // 5) * 5 if right < 5 else (left + right) % 5 + 5
    return (left - right) % 5 + 5 if right < 5 else (left - right) % 5


def _permuted(times: int, digit: int) -> int:
    for _ in range(times):
        digit = (1, 5, 7, 6, 2, 8, 3, 0, 9, 4)[digit]
    return digit


@dataclass(frozen=True, slots=True)
class _Number:
    """A kind of number: its pattern, a check of its characters, and the names required before it."""

    kind: str
    shape: Any
    valid: Callable[[str], bool]
    name: Any = None


def _shape(pattern: str) -> Any:
    """Compile a pattern that is not followed or preceded by a letter, digit, decimal point or dash."""
    return compiled(rf"(?:^|[^\w.,+-]|[^\d][.,-])({pattern})(?:$|[^\w.,-]|[.,-](?:$|[^\w-]))".encode())


def _names(pattern: str) -> Any:
    return compiled(rf"(?i)(?:^|[^a-z])(?:{pattern})(?:[^a-z]|s\b|$)".encode())


_NUMBERS = (
    _Number("us_ssn", _shape(r"\d{3}-\d{2}-\d{4}|\d{3} \d{2} \d{4}"), is_us_ssn),
    _Number("us_ssn", _shape(r"\d{9}"), is_us_ssn, _names("ssn|social security(?: number| no)?")),
    _Number("us_itin", _shape(r"9\d{2}-\d{2}-\d{4}|9\d{2} \d{2} \d{4}"), is_us_itin),
    _Number("us_itin", _shape(r"9\d{8}"), is_us_itin, _names("itin|taxpayer")),
    _Number("uk_nhs", _shape(r"\d{3}-\d{3}-\d{4}|\d{3} \d{3} \d{4}"), is_uk_nhs),
    _Number("uk_nhs", _shape(r"\d{10}"), is_uk_nhs, _names("nhs|national health(?: service)?|patient")),
    _Number("es_nif", _shape(r"\d{7,8}-[A-Za-z]|\d{8}[A-Z]|[XYZ]-?\d{7}-?[A-Z]"), is_es_nif),
    _Number("es_nif", _shape(r"\d{7,8}[A-Za-z]"), is_es_nif, _names("nif|dni|nie")),
    _Number(
        "it_fiscal_code",
        _shape(r"[A-Z]{6}[0-9LMNP-V]{2}[ABCDEHLMPRST]\d{2}[A-Z][0-9LMNP-V]{3}[A-Z]"),
        is_it_fiscal_code,
    ),
    _Number("sg_nric", _shape(r"[STFGM]\d{7}[A-Z]"), is_sg_nric),
    _Number("in_aadhaar", _shape(r"[2-9]\d{3}(?:-\d{4}-|:\d{4}:| \d{4} )\d{4}"), is_in_aadhaar),
    _Number("in_aadhaar", _shape(r"[2-9]\d{11}"), is_in_aadhaar, _names("aadhaar|aadhar|uidai")),
    _Number("pl_pesel", _shape(r"\d{11}"), is_pl_pesel, _names("pesel")),
    _Number("au_tfn", _shape(r"\d{3} ?\d{3} ?\d{3}"), is_au_tfn, _names("tfn|tax file(?: number| no)?")),
)

_ANY = compiled(
    rb"\d{3}[- ]\d{2,3}[- ]\d{4}|\d{4}[-: ]\d{4}|[A-Za-z-]\d{7}|\d{7}|\d{3} \d{3} \d{3}|[A-Z]{6}[0-9L-V]{2}"
)


def find_identities(text: bytes) -> Iterator[tuple[str, Span]]:
    """Yield the personal identification numbers in `text`."""
    if _ANY.search(text) is None:
        return
    for number in _NUMBERS:
        if number.name is not None and number.name.search(text) is None:
            continue
        match = number.shape.search(text)
        while match is not None:
            start, end = match.span(1)
            word = match.group(1)
            near = number.name is None or number.name.search(text[max(0, start - _AROUND) : start]) is not None
            if near and _stands_alone(text, start, end) and _is_valid(number, word):
                yield number.kind, (start, end)
            match = number.shape.search(text, end)


def _is_valid(number: _Number, word: bytes) -> bool:
    letters = bytes(char for char in word if chr(char).isalnum()).decode()
    unsure = number.kind == "es_nif" and number.name is None and b"-" not in word
    if unsure and (letters[-1].upper() in _UNITS or _DAY.match(word) is not None):
        return False
    return number.valid(letters)


def _stands_alone(text: bytes, start: int, end: int) -> bool:
    """Whether a number grouped by spaces is not part of a longer row of numbers, as in a web server's access log."""
    if b" " not in text[start:end]:
        return True
    before, after = text[max(0, start - 2) : start], text[end : end + 2]
    row_before = before[-1:] == b" " and (before[:1].isdigit() or before[:1] == b'"')
    return not row_before and not (after[:1] == b" " and after[1:].isdigit())

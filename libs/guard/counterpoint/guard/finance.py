"""Account numbers with check digits: IBANs, and Bitcoin and Ethereum addresses."""

import hashlib
from collections.abc import Iterator

from counterpoint.guard.automata import compiled
from counterpoint.guard.keccak import keccak_256
from counterpoint.guard.kinds import Span

_REGISTRY = """
AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28
EE20 EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26
IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28
NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25
SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30
"""
_IBAN_CHARS = {row[:2]: int(row[2:]) for row in _REGISTRY.split()}
"""IBAN length by country (SWIFT IBAN registry)."""
_LETTERLESS = """
AE AT BA BE BI CR CZ DE DJ DK EE EG ES FI FO GL HR HU IL IS LT LY ME MN MR NO PL PT RS SD SE SI SK SO ST TL TN VA XK
"""
_NUMERIC = frozenset(_LETTERLESS.split())
"""Countries whose IBANs have digits only (same registry)."""

_IBAN = compiled(rb"(?:^|[^A-Za-z0-9])([A-Za-z]{2}[0-9]{2}(?:[ -]?[A-Za-z0-9]){11,30})")
_COIN = compiled(rb"\b(?:([13][1-9A-HJ-NP-Za-km-z]{25,34})|((?i:bc1[02-9ac-hj-np-z]{11,71}))|(0x[0-9A-Fa-f]{40}))\b")
_BASE58 = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BECH32 = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_BECH32_FACTORS = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
_BECH32_CHECKS = (1, 0x2BC830A3)


def find_accounts(text: bytes) -> Iterator[tuple[str, Span]]:
    """Yield the account numbers in `text` with valid check digits."""
    match = _IBAN.search(text)
    while match is not None:
        end = _iban_end(text, match.start(1))
        if end:
            yield "iban", (match.start(1), end)
        match = _IBAN.search(text, end or match.start(1) + 1)
    for match in _COIN.finditer(text):
        word = match.group().decode()
        if match.start(1) >= 0:
            if is_base58_address(word):
                yield "bitcoin_address", match.span()
        elif match.start(2) >= 0:
            if is_bech32_address(word):
                yield "bitcoin_address", match.span()
        elif is_ethereum_address(word):
            yield "ethereum_address", match.span()


def is_iban(number: str) -> bool:
    """Whether `number`, without spaces, is an IBAN by length and checksum (ISO 13616)."""
    if number not in (number.upper(), number.lower()):
        return False
    number = number.upper()
    country = number[:2]
    if _IBAN_CHARS.get(country) != len(number) or (country in _NUMERIC and not number[2:].isdigit()):
        return False
    return int("".join(str(int(char, 36)) for char in number[4:] + number[:4])) % 97 == 1


def is_base58_address(word: str) -> bool:
    """Whether `word` is a base58 Bitcoin address: 25 bytes ending with four of their double SHA-256."""
    number = 0
    for char in word.encode():
        number = number * 58 + _BASE58.index(char)
    if number.bit_length() > 200:
        return False
    raw = number.to_bytes(25, "big")
    return raw[0] in (0, 5) and hashlib.sha256(hashlib.sha256(raw[:-4]).digest()).digest()[:4] == raw[-4:]


def is_bech32_address(word: str) -> bool:
    """Whether `word` is a segregated-witness Bitcoin address (BIP 173, BIP 350)."""
    if word not in (word.lower(), word.upper()):
        return False
    values = [_BECH32.index(char) for char in word.lower()[3:]]
    check = 1
    for value in (3, 3, 0, 2, 3, *values):
        top = check >> 25
        check = (check & 0x1FFFFFF) << 5 ^ value
        for bit, factor in enumerate(_BECH32_FACTORS):
            check ^= factor if top >> bit & 1 else 0
    return check in _BECH32_CHECKS


def is_ethereum_address(word: str) -> bool:
    """Whether `word`, 0x and 40 hex digits, is an Ethereum address by its mixed-case checksum (ERC-55).

    A single-case word has no checksum and counts as an address unless it repeats one digit.
    """
    digits = word[2:]
    if digits in (digits.lower(), digits.upper()):
        return len(set(digits)) > 2
    signs = keccak_256(digits.lower().encode()).hex()
    return all(
        char.isdigit() or char.isupper() == (int(sign, 16) > 7) for char, sign in zip(digits, signs, strict=False)
    )


def _iban_end(text: bytes, start: int) -> int:
    """Return the end of the IBAN that starts here, or 0. Its groups have one kind of separator, or none."""
    chars = _IBAN_CHARS.get(text[start : start + 2].decode().upper(), 0)
    number = bytearray()
    at = start
    while at < len(text) and len(number) < chars:
        if text[at : at + 1].isalnum():
            number += text[at : at + 1]
        elif text[at : at + 1] not in (b" ", b"-"):
            return 0
        at += 1
    following = text[at : at + 1]
    whole = chars > 0 and len(number) == chars and not following.isalnum() and following != b"_"
    return at if whole and is_iban(number.decode()) else 0

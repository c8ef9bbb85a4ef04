"""The labelled lines of `tests/data/sensitive_docs`: documentation, logs, persons' numbers and secrets.

A line may hold slots such as `{random16}`; they are filled at random from a seed, so no secret is in the repository.
"""

import base64
import json
import random
import re
import string
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from counterpoint.guard.cards import is_card_number
from counterpoint.guard.finance import is_iban
from counterpoint.guard.identities import is_in_aadhaar, is_uk_nhs, is_us_ssn

FOLDER = Path(__file__).parents[1] / "data" / "sensitive_docs"
DOCUMENTATION, LOGS, SECRETS = "documentation", "logs", "secrets"
LETTERS = string.ascii_letters
DIGITS = string.digits
_NIF_LETTERS = "TRWAGMYFPDXBNJZSQVHLCKE"
_NAMES = ("falcon", "harbour", "violet", "thunder", "meadow", "copper", "juniper", "saturn", "orchid", "glacier")
_WORDS = ("sunshine", "dragon", "butterfly", "football", "princess", "chocolate", "mountain", "strawberry", "monkey")


@dataclass(frozen=True, slots=True)
class Line:
    """A labelled line: `kind` is the class of what it holds, or `none`."""

    id: str
    split: str
    group: str
    kind: str
    text: str
    values: tuple[str, ...]
    """Values that fill its slots."""


def lines(name: str, split: str, seed: int = 0) -> tuple[Line, ...]:
    """The lines of one file and half, their slots filled from `seed`."""
    with (FOLDER / f"{name}.jsonl").open(encoding="utf-8") as rows:
        return tuple(_line(row, seed) for row in map(json.loads, rows) if row["split"] == split)


def _line(row: dict[str, str], seed: int) -> Line:
    values: list[str] = []
    draw = random.Random(f"{row['id']} {seed}")

    def fill(slot: re.Match[str]) -> str:
        values.append(_value(slot[1], draw))
        return values[-1]

    text = _SLOT.sub(fill, row["text"])
    return Line(row["id"], row["split"], row["group"], row["class"], text, tuple(values))


def _value(slot: str, draw: random.Random) -> str:
    made = _MAKERS.get(slot)
    if made is not None:
        return made(draw)
    name, length = slot.rstrip(DIGITS), int(slot[len(slot.rstrip(DIGITS)) :])
    match name:
        case "d":
            return _digits(draw, length)
        case "luhn":
            return _card(draw, length)
        case "hex":
            return _drawn(draw, "0123456789abcdef", length)
        case "random":
            return _mixed(draw, length)
        case _:
            raise ValueError(slot)


def _drawn(draw: random.Random, alphabet: str, length: int) -> str:
    return "".join(draw.choice(alphabet) for _ in range(length))


def _mixed(draw: random.Random, length: int) -> str:
    """Letters of both cases and digits, with some of each, as generators of passwords guarantee."""
    return _first(lambda: _drawn(draw, LETTERS + DIGITS, length), _has_all)


def _has_all(word: str) -> bool:
    return any(map(str.isdigit, word)) and any(map(str.isupper, word)) and any(map(str.islower, word))


def _digits(draw: random.Random, length: int) -> str:
    return draw.choice("123456789") + _drawn(draw, DIGITS, length - 1)


def _first(make: Callable[[], str], valid: Callable[[str], bool]) -> str:
    return next(value for value in iter(make, None) if valid(value))


def _card(draw: random.Random, length: int) -> str:
    prefixes = {14: ("36", "38"), 15: ("34", "37"), 16: ("4", "51", "53", "55"), 19: ("4",)}[length]
    prefix = draw.choice(prefixes)
    return _first(lambda: prefix + _drawn(draw, DIGITS, length - len(prefix)), is_card_number)


def _grouped(number: str, sign: str, *sizes: int) -> str:
    rest = iter(number)
    return sign.join("".join(next(rest) for _ in range(size)) for size in sizes)


def _area(draw: random.Random) -> str:
    return draw.choice("23456789") + _drawn(draw, DIGITS, 2)


def _ssn(draw: random.Random) -> str:
    return _first(lambda: _digits(draw, 9), is_us_ssn)


def _aadhaar(draw: random.Random) -> str:
    return _first(lambda: draw.choice("23456789") + _drawn(draw, DIGITS, 11), is_in_aadhaar)


def _nif(draw: random.Random) -> str:
    digits = _digits(draw, 8)
    return digits + _NIF_LETTERS[int(digits) % 23]


def _jwt(draw: random.Random) -> str:
    parts = (b'{"alg":"HS256","typ":"JWT"}', json.dumps({"sub": _digits(draw, 10)}).encode(), draw.randbytes(32))
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


def _human(draw: random.Random) -> str:
    """A password as people make one: a name, digits, a sign."""
    name = draw.choice(_NAMES).capitalize()
    return draw.choice((f"{name}{_digits(draw, 4)}!", f"{_digits(draw, 3)}{name}#{_digits(draw, 2)}", f"{name}$7x"))


_MAKERS: dict[str, Callable[[random.Random], str]] = {
    "us_phone": lambda draw: f"{_area(draw)}-{_area(draw)}-{_drawn(draw, DIGITS, 4)}",
    "us_number": lambda draw: f"({_area(draw)}) {_area(draw)}-{_drawn(draw, DIGITS, 4)}",
    "de_number": lambda draw: f"+49 30 {_digits(draw, 6)}",
    "uk_number": lambda draw: f"+44 20 7946 0{_drawn(draw, DIGITS, 3)}",
    "nhs": lambda draw: _grouped(_first(lambda: _digits(draw, 10), is_uk_nhs), " ", 3, 3, 4),
    "ssn_space": lambda draw: _grouped(_ssn(draw), " ", 3, 2, 4),
    "ssn_dash": lambda draw: _grouped(_ssn(draw), "-", 3, 2, 4),
    "aadhaar_space": lambda draw: _grouped(_aadhaar(draw), " ", 4, 4, 4),
    "aadhaar_dash": lambda draw: _grouped(_aadhaar(draw), "-", 4, 4, 4),
    "nif": _nif,
    "nric_letter": lambda draw: draw.choice(string.ascii_uppercase),
    "card_bare": lambda draw: _card(draw, 16),
    "card_dash": lambda draw: _grouped(_card(draw, 16), "-", 4, 4, 4, 4),
    "card_space": lambda draw: _grouped(_card(draw, 16), " ", 4, 4, 4, 4),
    "iban": lambda draw: _first(lambda: "DE" + _drawn(draw, DIGITS, 20), is_iban),
    "person_mail": lambda draw: f"{draw.choice(('ines', 'marek', 'oliver'))}.{draw.choice(_NAMES)}@acme-shop.com",
    "aws_key": lambda draw: "AKIA" + _drawn(draw, string.ascii_uppercase + "234567", 16),
    "aws_secret": lambda draw: _mixed(draw, 40),
    "github": lambda draw: "ghp_" + _mixed(draw, 36),
    "gitlab": lambda draw: "glpat-" + _mixed(draw, 20),
    "slack": lambda draw: f"xoxb-{_digits(draw, 12)}-{_digits(draw, 12)}-{_mixed(draw, 24)}",
    "stripe": lambda draw: "sk_live_" + _mixed(draw, 24),
    "databricks": lambda draw: "dapi" + _drawn(draw, "0123456789abcdef", 32),
    "vault": lambda draw: "hvs." + _mixed(draw, 95),
    "sendgrid": lambda draw: f"SG.{_mixed(draw, 22)}.{_mixed(draw, 43)}",
    "jwt": _jwt,
    "pem": lambda draw: "\n".join(_mixed(draw, 64) for _ in range(6)),
    "basic": lambda draw: base64.b64encode(f"orders:{_mixed(draw, 12)}".encode()).decode(),
    "fernet": lambda draw: base64.urlsafe_b64encode(draw.randbytes(32)).decode(),
    "azure": lambda draw: base64.b64encode(draw.randbytes(64)).decode(),
    "human": _human,
    "word": lambda draw: draw.choice(_WORDS),
}
_SLOT = re.compile(rf"\{{({'|'.join(_MAKERS)}|d\d+|luhn\d+|hex\d+|random\d+)\}}")

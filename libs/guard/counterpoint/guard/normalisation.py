"""Normalisation of a text before it is searched, with the spans of its characters in the original."""

import binascii
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from counterpoint.guard.kinds import Span

_BASE64_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"
_WORD_SIGNS = bytes(b"x"[0] if c in _BASE64_LETTERS else b" "[0] for c in range(256))
_LONG_WORD = b"x" * 20
_STANDARD_BASE64 = bytes.maketrans(b"-_", b"+/")


def long_words(text: str) -> Iterator[Span]:
    """Yield the spans of runs of base64 characters, from 20 characters on."""
    signs = text.encode("ascii", "replace").translate(_WORD_SIGNS) + b" "
    start = signs.find(_LONG_WORD)
    while start >= 0:
        end = signs.index(b" ", start)
        while text[end : end + 1] == "=":
            end += 1
        yield start, end
        start = signs.find(_LONG_WORD, end)


def decode_base64(word: str) -> str | None:
    """Return the text that a base64 word encodes, or None."""
    digits = word.rstrip("=").encode("ascii").translate(_STANDARD_BASE64)
    try:
        return binascii.a2b_base64(digits + b"=" * (-len(digits) % 4)).decode()
    except ValueError:
        return None


def normal(text: str) -> str:
    """Return `text` with compatibility forms, digits, dashes and spaces folded and format characters dropped."""
    return normalise(text)[0]


def normalise(text: str) -> tuple[str, list[Span] | None]:
    """Return the normalised text, and the span in `text` of each of its characters; None if all spans are unchanged."""
    if text.isascii():
        return text, None
    folded = {ord(char): _folded(char) for char in set(text) if not char.isascii()}
    normal = text.translate(folded)
    if all(len(char) == 1 for char in folded.values()):
        return normal, None
    places: list[Span] = []
    for index, char in enumerate(text):
        places += [(index, index + 1)] * len(folded.get(ord(char), char))
    return normal, places


@lru_cache(maxsize=4096)
def _folded(char: str) -> str:
    """Return the NFKC form; nothing for a format character, ASCII for a digit, dash or space of another script."""
    match unicodedata.category(char):
        case "Cf":
            return ""
        case "Nd":
            return str(unicodedata.decimal(char))
        case "Pd":
            return "-"
        case _:
            return unicodedata.normalize("NFKC", char)

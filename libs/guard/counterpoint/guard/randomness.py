"""Randomness of a word: whether it was generated or chosen by a person.

Signs of a generator are alternating letters and digits, and unpronounceable letters. Sequences such as `abcdef` and
`0123456789` are ignored.
"""

import re
from itertools import pairwise

from counterpoint.guard.entropy import entropy

_CHARS_MIN, _LONG_CHARS = 8, 14
_HEX_CHARS_MIN, _HEX_ENTROPY = 12, 2.5
_RUN = re.compile(r"[A-Za-z0-9]+(?:[+/=][A-Za-z0-9]+)*")
_HEX = re.compile(r"[0-9a-f]+|[0-9A-F]+")
_WORD = re.compile(r"[A-Z]?[a-z]{3,}|[A-Z]{4,}")
_SYLLABLES = re.compile(r"[bcdfghjklmnpqrstvwxz]{6,}", re.IGNORECASE)
_REPEATED = re.compile(r"(.)\1{4,}")
_VOWELS = frozenset("aeiouyAEIOUY")
_ROWS = ("abcdefghijklmnopqrstuvwxyz", "01234567890", "9876543210", "qwertzuiop", "qwertyuiop", "asdfghjkl")
_ROW_CHARS_MIN = 3


def has_random_run(text: str) -> bool:
    """Whether some run of letters and digits in `text` is random."""
    return any(is_random(run) for run in _RUN.findall(text))


def is_random(run: str) -> bool:
    """Whether a run of letters and digits is random. Digits alone and short runs are not."""
    run = without_rows(run)
    if len(run) < _CHARS_MIN or run.isdigit():
        return False
    if not any(char.isdigit() for char in run) and (run.islower() or run.isupper()):
        return _is_unpronounceable(run)
    if len(run) >= _HEX_CHARS_MIN and _HEX.fullmatch(run) and entropy(run) >= _HEX_ENTROPY:
        return True
    words = sum(len(word) for word in _WORD.findall(run) if not _is_unpronounceable(word))
    often = 5 if len(run) >= _LONG_CHARS and any(char.isdigit() for char in run) else 4
    return _changes(run) * often >= len(run) or 2 * words < len(run)


def without_rows(text: str) -> str:
    """Return `text` without sequences of the alphabet, digits or keyboard, and without repeated characters."""
    lowered = text.lower()
    kept = []
    at = 0
    while at < len(text):
        length = _row_chars(lowered, at)
        if length < _ROW_CHARS_MIN:
            kept.append(text[at])
            length = 1
        at += length
    return "".join(kept)


def is_masked(token: str) -> bool:
    """Whether repetitions of one character make up half of a token: it shows a format."""
    return 2 * sum(len(run[0]) for run in _REPEATED.finditer(token)) >= len(token)


def _row_chars(lowered: str, at: int) -> int:
    same = at + 1
    while lowered[same : same + 1] == lowered[at]:
        same += 1
    longest = same - at
    for row in _ROWS:
        place = row.find(lowered[at])
        length = 0
        while place >= 0 and lowered[at + length : at + length + 1] == row[place + length : place + length + 1] != "":
            length += 1
        longest = max(longest, length)
    return longest


def _changes(run: str) -> int:
    """Count changes between lowercase, uppercase and digits, except the one after an initial capital."""
    kinds = ["d" if char.isdigit() else "u" if char.isupper() else "l" for char in run]
    return sum(left != right and (left, right) != ("u", "l") for left, right in pairwise(kinds))


def _is_unpronounceable(word: str) -> bool:
    vowels = sum(char in _VOWELS for char in word)
    return _SYLLABLES.search(word) is not None or (len(word) >= 10 and vowels * 6 < len(word))

"""Exact forms of a text (numbers, dates and identifiers), and its words for comparison."""

import re

from counterpoint.developer.language.words import content_words

_NUMBER = re.compile(r"(?<![\w.−-])(?:[-−](?=\.?\d))?\.?\d+(?:[.,:/-]\d+)*(?:\s?[%‰]|\b)(?!\w)")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_IDENTIFIER = re.compile(r"\b(?:\w+(?:[_./:-]\w+)+|[a-z]+[A-Z]\w*|[A-Z]{2}\w*\d\w*|[^\W\d]*+\d\w*[A-Za-z]\w*)\b")
_PERCENT = re.compile(r"\s?per\s?cent\b", re.IGNORECASE)
_PLAIN = re.compile(r"[A-Za-z]+(?:-[A-Za-z]+)+|(?:[A-Za-z]\.)+[A-Za-z]|[\W\d]+")
_DAY = re.compile(
    r"\b(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)days?\b"
    r"|\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
    r"(?:uary|ruary|ch|il|e|y|ust|t|tember|ober|ember)?\b"
)
_FOREIGN = re.compile(r"(?<![^\W\d_])[^\W\d_]*[^\W\d_a-zA-Z][^\W\d_]*")

_JOINED = re.compile(r"[^\W_]+(?:[-_./:]+[^\W_]+)*")
_JOINT = re.compile(r"[-_.\d]")
NAME_CHARS_MIN = 5
"""Minimum characters of a name with a digit or a joint, such as `fct_orders`."""


def names_in(text: str) -> frozenset[str]:
    """Return the words of a text that look like the name of a job, data set or setting, in lower case."""
    return frozenset(word.lower() for word in _JOINED.findall(text) if is_name(word))


def is_name(word: str) -> bool:
    """Return whether a word looks like a name: with a digit, or of parts joined by dots, hyphens or underscores."""
    return len(word) >= NAME_CHARS_MIN and _JOINT.search(word) is not None


def exact(text: str) -> set[str]:
    """Return numbers with sign and percent, dates, times, names of days and months, and identifiers, in lower case and
    without thousands separators."""
    plain = _PERCENT.sub("%", _THOUSANDS.sub("", text))
    found = {"".join(each.lower().replace("−", "-").split()) for each in _NUMBER.findall(plain)}
    found |= {each.lower() for each in _IDENTIFIER.findall(plain) if not _PLAIN.fullmatch(each)}
    return found | {(day or month).lower() for day, month in _DAY.findall(text)}


def words_of(text: str) -> frozenset[str]:
    """Return the content words of a text, and its words with letters other than A to Z."""
    return content_words(text) | frozenset(word.casefold() for word in _FOREIGN.findall(text))

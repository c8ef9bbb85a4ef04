"""Exact forms of a text (numbers, dates and identifiers), and its words for comparison."""

import re

from counterpoint.developer.language.words import content_words

_NUMBER = re.compile(r"(?<![\w.−-])(?:[-−](?=\.?\d))?\.?\d+(?:[.,:/-]\d+)*(?:\s?[%‰]|\b)(?!\w)")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_IDENTIFIER = re.compile(r"\b(?:\w+(?:[_./:-]\w+)+|[a-z]+[A-Z]\w*|[A-Z]{2,}\w*\d\w*|\w*\d\w*[A-Za-z]\w*)\b")
_PERCENT = re.compile(r"\s?per\s?cent\b", re.IGNORECASE)
_PLAIN = re.compile(r"[A-Za-z]+(?:-[A-Za-z]+)+|(?:[A-Za-z]\.)+[A-Za-z]|[\W\d]+")
_DAY = re.compile(
    r"\b(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)days?\b"
    r"|\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
    r"(?:uary|ruary|ch|il|e|y|ust|t|tember|ober|ember)?\b"
)
_FOREIGN = re.compile(r"[^\W\d_]*[^\W\d_a-zA-Z][^\W\d_]*")


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

"""Content words: stems for the comparison of questions and passages, and their weights."""

import math
import re
from collections.abc import Iterable, Mapping, Set
from functools import cache, lru_cache
from importlib.resources import files

import Stemmer  # type: ignore[import-not-found]

_COMPOUND = re.compile(r"\b\d+(?:[.:-]\d+)+\b")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"[^\W\d_][^\W_]*|\d{2,}")
_STOP = frozenset(files("counterpoint.developer.language").joinpath("stopwords.txt").read_text().split())
_STEMMER = Stemmer.Stemmer("english")


@lru_cache(maxsize=100_000)
def _stem(word: str) -> str:
    return str(_STEMMER.stemWord(word))


@cache
def everyday_stems() -> frozenset[str]:
    """Return the stems of everyday words, such as most verbs: a page says the same in others. Names of things are
    left."""
    listed = files("counterpoint.developer.language").joinpath("everyday.txt").read_text()
    return frozenset(map(_stem, listed.split()))


def stem_of(word: str) -> str | None:
    """Return the stem of a word; None for a stop word or several words."""
    stems = content_words(word)
    return next(iter(stems)) if len(stems) == 1 else None


@lru_cache(maxsize=8_000)
def content_words(text: str) -> frozenset[str]:
    """Return the stems of the content words of a text.

    Identifiers are split (`fetch_orders`, `fetchOrders`); addresses, dates, times, versions and single digits are left
    out.
    """
    return frozenset(content_sequence(text))


def content_sequence(text: str) -> tuple[str, ...]:
    """Return the stems of the content words of a text in their order, with repetitions."""
    lowered = _HUMP.sub(" ", _COMPOUND.sub(" ", text)).lower()
    return tuple(_stem(word) for word in _WORD.findall(lowered) if word not in _STOP and len(word) > 1)


def weights(words: Iterable[str], candidates: Iterable[Set[str]]) -> dict[str, float]:
    """Return the inverse document frequency of each word among the candidates of a search.

    It is smoothed, so that a word in all candidates still counts: between ln 2 and ln(1 + candidates).
    """
    bags = list(candidates)
    return {word: math.log(1 + len(bags) / (1 + sum(word in bag for bag in bags))) for word in words} if bags else {}


def coverage(worth: Mapping[str, float], words: Set[str]) -> float:
    """Return the share in [0, 1] of the total weight that `words` have; 0 without weights."""
    total = math.fsum(worth.values())
    return math.fsum(value for word, value in worth.items() if word in words) / total if total else 0.0

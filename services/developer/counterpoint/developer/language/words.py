"""Content words: the stems by which a question and a passage are compared, and what each is worth."""

import math
import re
from collections.abc import Iterable, Mapping, Set
from functools import lru_cache
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


def stem_of(word: str) -> str | None:
    """The stem of a word, or None where it carries no meaning or is several."""
    stems = content_words(word)
    return next(iter(stems)) if len(stems) == 1 else None


@lru_cache(maxsize=2_000)
def content_words(text: str) -> frozenset[str]:
    """Stems of the words that carry meaning.

    Identifiers fall into their parts (`fetch_orders`, `fetchOrders`); addresses, dates, times, versions and lone
    digits are left out.
    """
    lowered = _HUMP.sub(" ", _COMPOUND.sub(" ", text)).lower()
    return frozenset(_stem(word) for word in _WORD.findall(lowered) if word not in _STOP and len(word) > 1)


def weights(words: Iterable[str], candidates: Iterable[Set[str]]) -> dict[str, float]:
    """Inverse document frequency of each word among the candidates of one search: rare words weigh more.

    Smoothed so that a word all candidates share still counts: between ln 2 and ln(1 + candidates).
    """
    bags = list(candidates)
    return {word: math.log(1 + len(bags) / (1 + sum(word in bag for bag in bags))) for word in words} if bags else {}


def coverage(worth: Mapping[str, float], words: Set[str]) -> float:
    """Share in [0, 1] of the worth of a text's words that `words` contain; 0 when the text has none."""
    total = sum(worth.values())
    return sum(value for word, value in worth.items() if word in words) / total if total else 0.0

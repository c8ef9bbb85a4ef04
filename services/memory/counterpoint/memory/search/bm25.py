"""Term weights: the inverse document frequency of BM25, and the selection of terms that bring candidates."""

from collections.abc import Mapping
from math import log

NEGLIGIBLE = 0.02
"""Share of all that the words of a query are worth, below which its commonest words bring no candidates."""


def idf(rows: int, holders: int) -> float:
    """The worth of a term that `holders` of `rows` rows hold, above 0."""
    return log(1 + (rows - holders + 0.5) / (holders + 0.5))


def bringing(worth: Mapping[str, float]) -> frozenset[str]:
    """The terms whose rows are candidates: all but the commonest, which together are worth next to nothing.

    In nearly every row, those would make the search read the whole project to tell rows apart that they do not tell
    apart. Candidates are scored by all terms.
    """
    left = NEGLIGIBLE * sum(worth.values())
    dropped = set()
    for term in sorted(worth, key=lambda term: (worth[term], term)):
        left -= worth[term]
        if left < 0:
            break
        dropped.add(term)
    return frozenset(worth) - dropped

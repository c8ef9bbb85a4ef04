"""Term weights: the inverse document frequency of BM25, and the selection of terms that bring candidates."""

from collections.abc import Mapping
from math import log

NEGLIGIBLE = 0.02
"""Share of the idf of a query's terms below which its commonest terms bring no candidates."""


def idf(rows: int, holders: int) -> float:
    """Return the idf of a term that `holders` of `rows` rows contain, above 0."""
    return log(1 + (rows - holders + 0.5) / (holders + 0.5))


def candidate_terms(worth: Mapping[str, float]) -> frozenset[str]:
    """Return the terms whose rows are candidates: all but the commonest, which together have next to no idf.

    They are in nearly every row, so that the search would read the whole project and not distinguish its rows.
    Candidates are scored by all terms.
    """
    left = NEGLIGIBLE * sum(worth.values())
    dropped = set()
    for term in sorted(worth, key=lambda term: (worth[term], term)):
        left -= worth[term]
        if left < 0:
            break
        dropped.add(term)
    return frozenset(worth) - dropped

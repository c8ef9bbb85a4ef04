"""Similar words: other forms of a word that no stemmer joins, such as German ones, parts of names and misspellings."""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache

LETTERS_MIN = 5
"""Minimum letters of a compared word."""
SIMILARITY_MIN = 0.6
"""Minimum Dice coefficient of the runs of three letters of two similar words."""
_RUN = 3


def similar_words(words: Iterable[str], among: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """Return for each word those among others that are spelled alike: `zurücksetzen` for `zurückzusetzen`, `schritt`
    for `schrit`."""
    with_run: dict[str, list[str]] = {}
    for other in among:
        for run in _runs(other):
            with_run.setdefault(run, []).append(other)
    return {word: _similar(word, with_run) for word in words}


def _similar(word: str, with_run: Mapping[str, list[str]]) -> frozenset[str]:
    runs = _runs(word)
    common = Counter(other for run in runs for other in with_run.get(run, ()))
    return frozenset(
        other for other, count in common.items() if 2 * count >= SIMILARITY_MIN * (len(runs) + len(_runs(other)))
    )


@lru_cache(maxsize=20_000)
def _runs(word: str) -> frozenset[str]:
    """Return the runs of three letters of a word with its edges; none of a short word or of one with digits."""
    if len(word) < LETTERS_MIN or not word.isalpha():
        return frozenset()
    edged = f"^{word}$"
    return frozenset(edged[n : n + _RUN] for n in range(len(edged) - _RUN + 1))

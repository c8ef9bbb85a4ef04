"""German compounds: their parts, compared with the words of a question and of the passages found for it."""

from collections.abc import Iterable, Set
from functools import lru_cache

from counterpoint.developer.language.german import is_particle, stem

_LINKS = ("", "s", "es", "n", "en", "e", "er")
_LEAST = 3
"""Minimum letters of a part."""
_MOST = 40
"""Maximum letters of a compound."""


@lru_cache(maxsize=5_000)
def splits(word: str) -> tuple[tuple[str, str], ...]:
    """Return the stems of the two parts of a lower-case word at each place where it may be joined, with any linking
    letters left out."""
    if len(word) > _MOST:
        return ()
    cuts = range(_LEAST, len(word) - _LEAST + 1)
    heads = ((word[:cut].removesuffix(link), cut) for cut in cuts for link in _LINKS if word[:cut].endswith(link))
    return tuple((stem(head), stem(word[cut:])) for head, cut in heads if len(head) >= _LEAST and not is_particle(head))


def parts(word: str, known: Set[str]) -> tuple[str, ...]:
    """Return the stems of the two parts of a word that are both `known` stems, the longest last part first; none if it
    has no such parts."""
    return next((pair for pair in splits(word) if all(part in known for part in pair)), ())


def compounds_with(stems: Set[str], found: Iterable[str], known: Set[str]) -> dict[str, set[str]]:
    """Return for each stem that has some the words `found` that are compounds of it and of another `known` stem."""
    compounds: dict[str, set[str]] = {}
    first, last = ({one[edge] for one in stems} for edge in (slice(_LEAST), slice(-_LEAST, None)))
    for word in found:
        if len(word) > _MOST or (word[:_LEAST] not in first and word[-_LEAST:] not in last):
            continue
        cuts = range(_LEAST, len(word) - _LEAST + 1)
        for one in stems & {edge for cut in cuts for edge in (word[:cut], word[cut:])}:
            if any(one in pair and all(part in known for part in pair) for pair in splits(word)):
                compounds.setdefault(one, set()).add(word)
    return compounds

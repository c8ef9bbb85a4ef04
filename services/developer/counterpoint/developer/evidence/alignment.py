"""Alignment of two error messages: the words that both have in the same order, and what stands in place of the rest."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache

WORDS = 60
"""Maximum number of compared words of a message."""


@dataclass(frozen=True)
class Alignment:
    """The weights of the words of two messages: `kept` by the current one, `replaced` by other words, and `added`
    beyond those that it drops elsewhere, since the same words in another order add nothing. Longer words weigh more.
    """

    kept: float = 0.0
    replaced: float = 0.0
    added: float = 0.0

    @property
    def replaced_share(self) -> float:
        """The share in [0, 1] of the common wording that is replaced: 1 without a common word, 0 without words."""
        return self.replaced / (self.kept + self.replaced) if self.replaced else 0.0

    @property
    def added_weight(self) -> float:
        """ln(1 + weight) of the added words, less if the other words are replaced; 0 without a common word."""
        return math.log1p(self.added) * (1 - self.replaced_share) if self.kept else 0.0


@lru_cache(maxsize=2_000)
def align(earlier: tuple[str, ...], current: tuple[str, ...]) -> Alignment:
    """Return the alignment of the words of an earlier message with those of the current one."""
    earlier, current = earlier[:WORDS], current[:WORDS]
    if not earlier or not current:
        return Alignment()
    if set(earlier).isdisjoint(current):
        before, after = _weight(earlier), _weight(current)
        return Alignment(0.0, min(before, after), max(0.0, after - before))
    kept = replaced = added = dropped = 0.0
    for _, start, end, its_start, its_end in SequenceMatcher(None, earlier, current, autojunk=False).get_opcodes():
        before, after = _weight(earlier[start:end]), _weight(current[its_start:its_end])
        if earlier[start:end] == current[its_start:its_end]:
            kept += before
            continue
        replaced += min(before, after)
        added += max(0.0, after - before)
        dropped += max(0.0, before - after)
    return Alignment(kept, replaced, max(0.0, added - dropped))


def word_weight(word: str) -> float:
    """Return the weight of a word: the longer the word, the more it says."""
    return math.log(1 + len(word))


def _weight(words: Sequence[str]) -> float:
    return sum(map(word_weight, words))

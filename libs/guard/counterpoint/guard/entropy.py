"""Entropy: how far a text is from being one sign repeated."""

import math
from collections import Counter


def entropy(text: str | bytes) -> float:
    """Shannon's entropy of `text` in bits a character."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())

"""Shannon entropy."""

import math
from collections import Counter


def entropy(text: str | bytes) -> float:
    """Return the Shannon entropy of `text` in bits per character."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())

"""Growth of processor time with the size of the input, as a ratio of two runs."""

import time
from collections.abc import Callable

TIMES_LARGER = 8
ROUNDS = 3
# Eight times the input: 8 when linear, 64 when quadratic.
LIMIT = 32
FLOOR_S = 1e-3


def growth(work: Callable[[int], object], size: int) -> float:
    """Return how many times more processor time of this thread `work(size)` takes than an eighth of it.

    An eighth is not measured where it could not make the ratio `LIMIT`.
    """
    large = _thread_s(work, size)
    if large < LIMIT * FLOOR_S:
        return large / FLOOR_S
    small = max(min(_thread_s(work, size // TIMES_LARGER) for _ in range(ROUNDS)), FLOOR_S)
    for _ in range(ROUNDS - 1):
        if large / small < LIMIT:
            break
        large = min(large, _thread_s(work, size))
    return large / small


def _thread_s(work: Callable[[int], object], size: int) -> float:
    began = time.thread_time()
    work(size)
    return time.thread_time() - began

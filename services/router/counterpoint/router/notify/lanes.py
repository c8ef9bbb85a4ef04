"""Lanes: how many calls one receiver may have at once, and its pause while it fails. One process, by its own clock.

A receiver that hangs or refuses holds up its own lane alone: what is due meanwhile is planned again for later.
"""

import time
from collections.abc import Callable

CALLS_AT_ONCE = 4
FAILURES_BEFORE_PAUSE = 3
PAUSE_S, PAUSE_LIMIT_S = 30.0, 1800.0
_DOUBLED = 10
"""The pause is doubled so often at most: a receiver may fail for ever."""
BUSY_S = 10.0
"""Delay of a delivery that finds its lane full."""


class Lane:
    """The calls to one receiver. After some failures in a row it pauses, longer each time."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._calls = 0
        self._failures = 0
        self._paused_until_s = 0.0

    def delay_s(self) -> float:
        """Return the seconds until a call may be tried; 0 for now."""
        remaining_s = self._paused_until_s - self._clock_s()
        if remaining_s > 0:
            return remaining_s
        return BUSY_S if self._calls >= CALLS_AT_ONCE else 0.0

    def begin(self) -> None:
        """Count a call."""
        self._calls += 1

    def end(self) -> None:
        """Count the end of a call."""
        self._calls -= 1

    def note(self, *, failed: bool, retry_after_s: float | None = None) -> None:
        """Note the outcome of a call. `retry_after_s` is the pause that the receiver asked for."""
        self._failures = self._failures + 1 if failed else 0
        pause_s = retry_after_s or 0.0
        if self._failures >= FAILURES_BEFORE_PAUSE:
            doubled = min(self._failures - FAILURES_BEFORE_PAUSE, _DOUBLED)
            pause_s = max(pause_s, min(PAUSE_S * 2**doubled, PAUSE_LIMIT_S))
        if pause_s:
            self._paused_until_s = max(self._paused_until_s, self._clock_s() + pause_s)

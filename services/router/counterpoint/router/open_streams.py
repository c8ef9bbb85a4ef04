"""Open event streams, counted by principal."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from counterpoint.proto.errors import ErrorCode, Permanent, Problem

LIMIT = 500
"""Maximum number of open event streams of a principal."""


class OpenStreams:
    """The number of open event streams by principal."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    @contextmanager
    def count(self, principal: str) -> Iterator[None]:
        """Count a stream while it is open. Raises `Permanent` if its principal has the maximum already."""
        if self._open[principal] >= LIMIT:
            problem = f"has {LIMIT} open event streams, which is the maximum"
            raise Permanent(ErrorCode.TOO_MANY_STREAMS, (Problem(field="principal", problem=problem),))
        self._open[principal] += 1
        try:
            yield
        finally:
            self._open[principal] -= 1
            if not self._open[principal]:
                del self._open[principal]

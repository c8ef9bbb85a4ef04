"""Optimistic concurrency: repeat reads, decision and commit when another writer was faster."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from counterpoint.proto.errors import Conflict

T = TypeVar("T")


async def retry_on_conflict(work: Callable[[], Awaitable[T]], attempts: int) -> T:
    """Return the result of `work`, called up to `attempts` times while it raises `Conflict`. Raises the last one."""
    for _ in range(attempts - 1):
        try:
            return await work()
        except Conflict:
            continue
    return await work()

"""Sizes of what grows with the events of others, in bytes of JSON."""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TypeVar

from pydantic_core import to_json

T = TypeVar("T")


def fitting(values: Iterable[T], limit_bytes: int) -> tuple[T, ...]:
    """Return the first values whose JSON has at most `limit_bytes` in all."""
    listed = list(values)
    sizes = accumulate(len(to_json(value)) for value in listed)
    return tuple(value for value, size in zip(listed, sizes, strict=True) if size <= limit_bytes)


def last_fitting(values: Sequence[T], limit_bytes: int) -> tuple[T, ...]:
    """Return the last values whose JSON has at most `limit_bytes` in all."""
    return fitting(reversed(values), limit_bytes)[::-1]

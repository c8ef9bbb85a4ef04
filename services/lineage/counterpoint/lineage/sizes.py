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


def shortest(names: Iterable[str], limit_chars: int) -> tuple[str, ...]:
    """Return the shortest names with at most `limit_chars` in all, sorted by name. They are the same for names that are
    added in any order, or twice."""
    by_length = sorted(set(names), key=lambda name: (len(name), name))
    lengths = accumulate(map(len, by_length))
    return tuple(sorted(name for name, length in zip(by_length, lengths, strict=True) if length <= limit_chars))

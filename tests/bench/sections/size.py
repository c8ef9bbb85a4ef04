"""How much the benchmark of memory works with: a short version of minutes, and all of it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """`searched` are counts of items in a hundred projects, each measured on its own; `samples` is for each run."""

    runs: int = 3
    samples: int = 200
    adds: int = 600
    batches: int = 20
    searched: tuple[int, ...] = (10_000,)
    past: int = 100_000
    leaves: int = 100_000
    commits: int = 5_000


SHORT = Size()
FULL = Size(samples=500, adds=3_000, batches=60, searched=(10_000, 100_000, 1_000_000), leaves=1_000_000)
TINY = Size(runs=1, samples=5, adds=5, batches=1, searched=(2_000,), past=500, leaves=2_000, commits=40)
"""Enough to see that each section works; its figures mean nothing."""

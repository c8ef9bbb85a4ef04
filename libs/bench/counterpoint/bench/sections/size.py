"""Amounts that the memory benchmark works with."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SectionSize:
    """Amounts of the sections. `samples` is per run. Each item count of `searched` is measured on its own."""

    runs: int = 3
    samples: int = 200
    adds: int = 600
    batches: int = 20
    searched: tuple[int, ...] = (10_000,)
    past: int = 100_000
    leaves: int = 100_000
    commits: int = 5_000


SHORT = SectionSize()
FULL = SectionSize(samples=500, adds=3_000, batches=60, searched=(10_000, 100_000, 1_000_000), leaves=1_000_000)

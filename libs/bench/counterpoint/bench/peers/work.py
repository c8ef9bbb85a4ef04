"""Workload of every memory store: items of a hundred tenants, questions, and one item with concurrent updates.

The module needs the standard library alone, because two environments import it. The workload brings its vectors.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

K = 10
UPDATES = 100


@dataclass(frozen=True)
class PeerWorkload:
    """`items` and `questions` are (tenant, text); `vectors` are by text. `best` has, per question, the texts that an
    exact search inside the tenant finds."""

    items: list[tuple[str, str]]
    questions: list[tuple[str, str]]
    vectors: dict[str, list[float]]
    best: list[list[str]]

    @classmethod
    def read(cls, path: Path) -> "PeerWorkload":
        """Read a workload from the file of the driver."""
        return cls(**json.loads(path.read_text()))

    def write(self, path: Path) -> None:
        """Write the workload for the other environment."""
        path.write_text(json.dumps(vars(self)))


def measure_search(work: PeerWorkload, search: Callable[[str, str], Sequence[str]]) -> dict[str, float]:
    """Return the recall against the exact search, and the median of a search in milliseconds."""
    took, recall = [], 0.0
    for (tenant, text), best in zip(work.questions, work.best, strict=True):
        began = time.perf_counter()
        found = search(tenant, text)
        took.append((time.perf_counter() - began) * 1000)
        recall += len(set(found) & set(best)) / len(best)
    return {"recall": recall / len(work.questions), "search_p50_ms": sorted(took)[len(took) // 2]}


def adds_per_second(work: PeerWorkload, add: Callable[[str, str], Any]) -> float:
    """Add one item after the other; return the items per second."""
    began = time.perf_counter()
    for tenant, text in work.items:
        add(tenant, text)
    return len(work.items) / (time.perf_counter() - began)

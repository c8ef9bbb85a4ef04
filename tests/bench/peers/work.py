"""The work that every memory gets: items of a hundred tenants, questions, and one item that many change at once.

Needs the standard library alone, for it is read in two environments. Vectors come with the work: no peer embeds.
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
class Work:
    """`items` and `questions` are (tenant, text); `vectors` by text; `best` are, by question, the texts an exact
    search inside the tenant finds."""

    items: list[tuple[str, str]]
    questions: list[tuple[str, str]]
    vectors: dict[str, list[float]]
    best: list[list[str]]

    @classmethod
    def read(cls, path: Path) -> "Work":
        """From the file that the driver has left."""
        return cls(**json.loads(path.read_text()))

    def write(self, path: Path) -> None:
        """For the other environment."""
        path.write_text(json.dumps(vars(self)))


def asked(work: Work, search: Callable[[str, str], Sequence[str]]) -> dict[str, float]:
    """Recall against the exact search, and the p50 of a search in ms."""
    took, recall = [], 0.0
    for (tenant, text), best in zip(work.questions, work.best, strict=True):
        began = time.perf_counter()
        found = search(tenant, text)
        took.append((time.perf_counter() - began) * 1000)
        recall += len(set(found) & set(best)) / len(best)
    return {"recall": recall / len(work.questions), "search_p50_ms": sorted(took)[len(took) // 2]}


def adds_a_second(work: Work, add: Callable[[str, str], Any]) -> float:
    """One item after the other."""
    began = time.perf_counter()
    for tenant, text in work.items:
        add(tenant, text)
    return len(work.items) / (time.perf_counter() - began)

"""What was asked before: the same search again, while the process remembers it, and when only Valkey does."""

import time
from itertools import islice
from pathlib import Path

from bench.measure import Measure, Report, p50
from bench.sections.search import fill, questions
from bench.sections.size import Size
from bench.small import Small, small

from counterpoint.memory.cache import L1_ITEMS
from counterpoint.memory.search import Search
from counterpoint.proto.memory import MemoryQuery, VectorSearch

ITEMS = 10_000
K = 10
PROJECT = "bench-0"


async def _took(place: Small, *queries: MemoryQuery) -> float:
    """Milliseconds of one request."""
    memory = place.router.memory(PROJECT, None)
    began = time.perf_counter()
    await memory.query(*queries)
    return (time.perf_counter() - began) * 1000


async def _asked(place: Small, texts: list[str]) -> tuple[float, float]:
    """The median of these searches, and that of requests for nothing, one after each."""
    took, nothing = [], []
    for text in texts:
        took.append(await _took(place, VectorSearch(store="attempts", text=text, k=K)))
        nothing.append(await _took(place))
    return p50(took), p50(nothing)


async def measured(folder: Path, size: Size, report: Report) -> None:
    """The rows about what was asked before. `size` says how many questions a run has."""
    first, l1, l2 = [], [], []
    others = questions()
    async with small(folder / "stack") as place:
        await fill(place, Search(None, None), min(ITEMS, size.searched[0]))
        for _ in range(size.runs):
            report.note_load()
            texts = list(islice(others, size.samples))
            first.append(await _asked(place, texts))
            l1.append(await _asked(place, texts))
            # So many others that nothing of these is left in the process.
            await _asked(place, list(islice(others, L1_ITEMS)))
            l2.append(await _asked(place, texts))
    report.measures += [
        Measure("a search for the first time, p50", "ms", tuple(ours for ours, _ in first), None),
        _beside("the same search again (L1), p50 / an empty RPC", l1, 1.2),
        _beside("the same search when only Valkey knows it (L2), p50 / an empty RPC", l2, 1.5),
    ]


def _beside(name: str, runs: list[tuple[float, float]], target: float) -> Measure:
    return Measure(name, "ms", tuple(ours for ours, _ in runs), target, tuple(nothing for _, nothing in runs))

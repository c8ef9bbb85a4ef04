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
from counterpoint.proto.memory import VectorSearch

ITEMS = 10_000
K = 10
PROJECT = "bench-0"


async def _asked(place: Small, texts: list[str]) -> list[float]:
    """Milliseconds of each."""
    took = []
    for text in texts:
        memory = place.router.memory(PROJECT, None)
        began = time.perf_counter()
        await memory.query(VectorSearch(store="attempts", text=text, k=K))
        took.append((time.perf_counter() - began) * 1000)
    return took


async def _nothing(place: Small, count: int) -> list[float]:
    took = []
    for _ in range(count):
        memory = place.router.memory(PROJECT, None)
        began = time.perf_counter()
        await memory.query()
        took.append((time.perf_counter() - began) * 1000)
    return took


async def measured(folder: Path, size: Size, report: Report) -> None:
    """The rows about what was asked before. `size` says how many questions a run has."""
    first, l1, l2, rpc = [], [], [], []
    others = questions()
    async with small(folder / "stack") as place:
        await fill(place, Search(None, None), min(ITEMS, size.searched[0]))
        for _ in range(size.runs):
            report.note_load()
            texts = list(islice(others, size.samples))
            first.append(p50(await _asked(place, texts)))
            l1.append(p50(await _asked(place, texts)))
            rpc.append(p50(await _nothing(place, size.samples)))
            # So many others that nothing of these is left in the process.
            await _asked(place, list(islice(others, L1_ITEMS)))
            l2.append(p50(await _asked(place, texts)))
    report.measures += [
        Measure("a search for the first time, p50", "ms", tuple(first), None),
        Measure("the same search again (L1), p50 / an empty RPC", "ms", tuple(l1), 1.2, tuple(rpc)),
        Measure("the same search when only Valkey knows it (L2), p50 / an empty RPC", "ms", tuple(l2), 1.5, tuple(rpc)),
    ]

"""Repeated searches: the answer is in the cache of the process (L1), or in Valkey alone (L2)."""

import time
from itertools import islice
from pathlib import Path

from counterpoint.bench.bench_stack import BenchStack, bench_stack
from counterpoint.bench.report import BenchReport, Measurement, p50
from counterpoint.bench.sections.filtered_search import distinct_questions, fill_attempts
from counterpoint.bench.sections.size import SectionSize
from counterpoint.memory.cache.cache import L1_ITEMS
from counterpoint.memory.search.vectors import SearchEngine
from counterpoint.proto.memory import MemoryQuery, VectorSearch

ITEMS = 10_000
K = 10
PROJECT = "bench-0"


async def _request_ms(bench: BenchStack, *queries: MemoryQuery) -> float:
    """Return the milliseconds of one request."""
    memory = bench.router.memory(PROJECT, None)
    began = time.perf_counter()
    await memory.query(*queries)
    return (time.perf_counter() - began) * 1000


async def _search_medians(bench: BenchStack, texts: list[str]) -> tuple[float, float]:
    """Return the median of these searches, and of empty requests in between, in milliseconds."""
    searches, empty = [], []
    for text in texts:
        searches.append(await _request_ms(bench, VectorSearch(store="attempts", text=text, k=K)))
        empty.append(await _request_ms(bench))
    return p50(searches), p50(empty)


async def measure(folder: Path, size: SectionSize, report: BenchReport) -> None:
    """Measure repeated searches, `size.samples` per run."""
    first, l1, l2 = [], [], []
    others = distinct_questions()
    async with bench_stack(folder / "stack") as bench:
        await fill_attempts(bench, SearchEngine(None, None), min(ITEMS, size.searched[0]))
        for _ in range(size.runs):
            report.note_load()
            texts = list(islice(others, size.samples))
            first.append(await _search_medians(bench, texts))
            l1.append(await _search_medians(bench, texts))
            # As many others as L1 holds, so that it has evicted these.
            await _search_medians(bench, list(islice(others, L1_ITEMS)))
            l2.append(await _search_medians(bench, texts))
    report.measures += [
        Measurement("a search for the first time, p50", "ms", tuple(ours for ours, _ in first), None),
        _beside("the same search again (L1), p50 / an empty RPC", l1, 1.2),
        _beside("the same search from Valkey alone (L2), p50 / an empty RPC", l2, 1.5),
    ]


def _beside(name: str, runs: list[tuple[float, float]], target: float) -> Measurement:
    return Measurement(name, "ms", tuple(ours for ours, _ in runs), target, tuple(empty for _, empty in runs))

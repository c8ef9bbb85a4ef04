"""Reads as of a past commit or time, in a store of which half the items have a second version."""

import random
import time
from pathlib import Path

from counterpoint.bench.bench_stack import bench_stack
from counterpoint.bench.report import BenchReport, Measurement, p50, p99
from counterpoint.bench.sections.size import SectionSize
from counterpoint.proto.memory import Get, List, MemoryQuery

PROJECT = "bench"
STORE = "entities"
WARM = 20

_PRESENT = """
INSERT INTO records (project, store, id, version, seq, author, label, integrity, body, sha256, commit_id, at)
SELECT $1, $2, 'e-' || n, 1 + (n % 2), CASE WHEN n % 2 = 0 THEN n + 1 ELSE $3 + n + 1 END, 'memory', 1, 2,
       jsonb_build_object('name', 'service ' || n, 'kind', 'service', 'version', 1 + (n % 2)), sha256(n::text::bytea),
       gen_random_uuid(), now() - interval '1 second' * CASE WHEN n % 2 = 0 THEN 2 * $3 - n ELSE $3 - n END
FROM generate_series(0, $3::int - 1) AS n
"""
_PAST = """
INSERT INTO history (project, store, id, version, seq, author, label, integrity, body, sha256, commit_id, at,
                     superseded)
SELECT $1, $2, 'e-' || n, 1, n + 1, 'memory', 1, 2,
       jsonb_build_object('name', 'service ' || n, 'kind', 'service', 'version', 1), sha256(n::text::bytea),
       gen_random_uuid(), now() - interval '1 second' * (2 * $3 - n), $3 + n + 1
FROM generate_series(1, $3::int - 1, 2) AS n
"""
_WRITTEN = """
SELECT commit_id::text AS commit, at FROM (
    SELECT commit_id, at FROM records WHERE project = $1 AND store = $2
    UNION ALL SELECT commit_id, at FROM history WHERE project = $1 AND store = $2) AS written
ORDER BY md5(commit_id::text) LIMIT $3
"""


async def measure(folder: Path, size: SectionSize, report: BenchReport) -> None:
    """Measure as-of reads."""
    draw = random.Random(3)
    results: dict[str, tuple[list[float], list[float]]] = {}
    async with bench_stack(folder / "stack") as bench:
        await bench.postgres.execute(_PRESENT, PROJECT, STORE, size.past)
        await bench.postgres.execute(_PAST, PROJECT, STORE, size.past)
        await bench.postgres.execute("INSERT INTO projects (project, last_seq) VALUES ($1, $2)", PROJECT, 2 * size.past)
        await bench.postgres.execute("VACUUM ANALYZE records, history")
        written = await bench.postgres.fetch(_WRITTEN, PROJECT, STORE, 1000)

        def get() -> MemoryQuery:
            return Get(store=STORE, id=f"e-{draw.randrange(size.past)}", as_of=draw.choice(written)["commit"])

        def page() -> MemoryQuery:
            return List(store=STORE, as_of=draw.choice(written)["commit"])

        def page_at() -> MemoryQuery:
            return List(store=STORE, as_of=draw.choice(written)["at"].isoformat())

        for run in range(size.runs + 1):
            report.note_load()
            for name, make in (("Get at a commit", get), ("List at a commit", page), ("List at a time", page_at)):
                took = []
                for _ in range(size.samples if run else WARM):
                    memory, query = bench.router.memory(PROJECT, None), make()
                    began = time.perf_counter()
                    await memory.query(query)
                    took.append((time.perf_counter() - began) * 1000)
                if run:
                    p99s, medians = results.setdefault(name, ([], []))
                    p99s.append(p99(took))
                    medians.append(p50(took))
    for name, (p99s, medians) in results.items():
        report.measures += [
            Measurement(f"{name} among {size.past} items, p99", "ms", tuple(p99s), 50),
            Measurement(f"{name} among {size.past} items, p50", "ms", tuple(medians), None),
        ]

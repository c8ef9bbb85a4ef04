"""Reads as of a past commit or time, in a store of which half was changed since it was first written."""

import random
import time
from pathlib import Path

from bench.measure import Measure, Report, p50, p99
from bench.sections.size import Size
from bench.small import small

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
_MOMENTS = """
SELECT commit_id::text AS commit, at FROM (
    SELECT commit_id, at FROM records WHERE project = $1 AND store = $2
    UNION ALL SELECT commit_id, at FROM history WHERE project = $1 AND store = $2) AS written
ORDER BY md5(commit_id::text) LIMIT $3
"""


async def measured(folder: Path, size: Size, report: Report) -> None:
    """The rows about past moments."""
    choose = random.Random(3)
    found: dict[str, tuple[list[float], list[float]]] = {}
    async with small(folder / "stack") as place:
        await place.record.execute(_PRESENT, PROJECT, STORE, size.past)
        await place.record.execute(_PAST, PROJECT, STORE, size.past)
        await place.record.execute("INSERT INTO projects (project, last_seq) VALUES ($1, $2)", PROJECT, 2 * size.past)
        await place.record.execute("VACUUM ANALYZE records, history")
        moments = await place.record.fetch(_MOMENTS, PROJECT, STORE, 1000)

        def get() -> MemoryQuery:
            return Get(store=STORE, id=f"e-{choose.randrange(size.past)}", as_of=choose.choice(moments)["commit"])

        def page() -> MemoryQuery:
            return List(store=STORE, as_of=choose.choice(moments)["commit"])

        def page_at() -> MemoryQuery:
            return List(store=STORE, as_of=choose.choice(moments)["at"].isoformat())

        for run in range(size.runs + 1):
            report.note_load()
            for name, make in (("Get at a commit", get), ("List at a commit", page), ("List at a time", page_at)):
                took = []
                for _ in range(size.samples if run else WARM):
                    memory, query = place.router.memory(PROJECT, None), make()
                    began = time.perf_counter()
                    await memory.query(query)
                    took.append((time.perf_counter() - began) * 1000)
                if run:
                    late, mid = found.setdefault(name, ([], []))
                    late.append(p99(took))
                    mid.append(p50(took))
    for name, (late, mid) in found.items():
        report.measures += [
            Measure(f"{name} among {size.past} items, p99", "ms", tuple(late), 50),
            Measure(f"{name} among {size.past} items, p50", "ms", tuple(mid), None),
        ]

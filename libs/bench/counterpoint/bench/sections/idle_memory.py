"""Memory of the idle memory service, with all its tiers open."""

import asyncio
from pathlib import Path

from counterpoint.bench.bench_stack import bench_stack
from counterpoint.bench.processes import pss_mb
from counterpoint.bench.report import BenchReport, Measurement, progress
from counterpoint.bench.sections.filtered_search import fill_attempts
from counterpoint.bench.sections.size import SectionSize
from counterpoint.memory.search.vectors import SearchEngine
from counterpoint.proto.memory import Cypher, Rebuild, VectorSearch

ITEMS = 1_000
PROJECT = "bench-0"
IDLE_S = 10
_MEMORIES = """
INSERT INTO records (project, store, id, version, seq, author, label, integrity, body, sha256, commit_id)
SELECT $1, 'coder_memory', 'm-' || n, 1, 100000 + n, 'developer', 1, 2,
       jsonb_build_object('text', 'restart worker ' || n || ' and run the task again'), sha256(n::text::bytea),
       gen_random_uuid()
FROM generate_series(1, 200) AS n
"""


async def measure(folder: Path, size: SectionSize, report: BenchReport) -> None:
    """Measure the proportional set size (PSS) of the process."""
    sizes = []
    for run in range(1, size.runs + 1):
        async with bench_stack(folder / f"stack-{run}") as bench:
            await fill_attempts(bench, SearchEngine(None, None), ITEMS)
            await bench.postgres.execute(_MEMORIES, PROJECT)
            await bench.postgres.execute("UPDATE projects SET last_seq = 200000 WHERE project = $1", PROJECT)
            memory = bench.router.memory(PROJECT, "administrator")
            await memory.query(VectorSearch(store="attempts", text="a worker was restarted", k=5))
            await memory.query(Cypher(query="MATCH (a:Action) RETURN count(a)"))
            # The rebuild opens the episodic index, which then stays open.
            (found,) = await memory.query(Rebuild(tier="episodic", start=True))
            while (found.report or {})["state"] == "running":
                (found,) = await memory.query(Rebuild(tier="episodic"))
            assert (found.report or {})["state"] == "done", found.report
            progress(f"idle for {IDLE_S} s")
            await asyncio.sleep(IDLE_S if size.samples > 10 else 0)
            report.note_load()
            pid = bench.stack.endpoints.services["memory"].pid
            assert pid is not None
            sizes.append(pss_mb((pid,)))
    report.measures.append(Measurement("PSS of memory, idle, all tiers open", "MB", tuple(sizes), 350))

"""What memory holds of the machine when it does nothing, with all its tiers open."""

import asyncio
from pathlib import Path

from bench.measure import Measure, Report, say
from bench.sections.search import fill
from bench.sections.size import Size
from bench.small import small

from counterpoint.memory.search import Search
from counterpoint.proto.memory import Cypher, Rebuild, VectorSearch

ITEMS = 1_000
PROJECT = "bench-0"
QUIET_S = 10
_MEMORIES = """
INSERT INTO records (project, store, id, version, seq, author, label, integrity, body, sha256, commit_id)
SELECT $1, 'coder_memory', 'm-' || n, 1, 100000 + n, 'developer', 1, 2,
       jsonb_build_object('text', 'restart worker ' || n || ' and run the task again'), sha256(n::text::bytea),
       gen_random_uuid()
FROM generate_series(1, 200) AS n
"""


async def measured(folder: Path, size: Size, report: Report) -> None:
    """The row about RAM: the proportional share of it (PSS) that the process has."""
    held = []
    for run in range(1, size.runs + 1):
        async with small(folder / f"stack-{run}") as place:
            await fill(place, Search(None, None), ITEMS)
            await place.record.execute(_MEMORIES, PROJECT)
            await place.record.execute("UPDATE projects SET last_seq = 200000 WHERE project = $1", PROJECT)
            memory = place.router.memory(PROJECT, "administrator")
            await memory.query(VectorSearch(store="attempts", text="a worker was restarted", k=5))
            await memory.query(Cypher(query="MATCH (a:Action) RETURN count(a)"))
            # An index of what is remembered by meaning; it stays open from then on.
            (found,) = await memory.query(Rebuild(tier="episodic", start=True))
            while (found.report or {})["state"] == "running":
                (found,) = await memory.query(Rebuild(tier="episodic"))
            assert (found.report or {})["state"] == "done", found.report
            say(f"quiet for {QUIET_S} s")
            await asyncio.sleep(QUIET_S if size.samples > 10 else 0)
            report.note_load()
            pid = place.stack.endpoints.services["memory"].pid
            held.append(_pss_mb(pid))
    report.measures.append(Measure("PSS of memory, idle, all tiers open", "MB", tuple(held), 350))


def _pss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("the kernel does not say")

"""A wrong source under all that was ever learned: how long until that is known, and until it is taken back."""

import time
from pathlib import Path

from bench.measure import Measure, Report, say
from bench.sections.size import Size
from bench.small import Small, small

from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Commit, Origin, RestsOn, Write
from counterpoint.proto.messages import utc_now
from counterpoint.recall import Memory

READS = 20
WRITES = 2
STORES = ("actions", "decisions")
PATIENCE_S = 60
LIMIT = 5_000
"""The most that one question shows; all of it is found before."""

# Commit `n` reads what commit `(n - 1) / 4` wrote and others before it; commit 0 reads the source.
_COMMITS = """
CREATE TEMP TABLE made AS SELECT n, gen_random_uuid() AS id FROM generate_series(0, $1::int - 1) AS n
"""
_SOURCE = """
INSERT INTO records (project, store, id, version, seq, author, label, integrity, body, sha256, commit_id)
VALUES ($1, 'entities', 'source', 1, 1, 'memory', 1, 2, '{"name": "source"}', sha256('source'), gen_random_uuid())
"""
_RECORDS = """
INSERT INTO records (project, store, id, version, seq, task_id, author, label, integrity, body, sha256, commit_id)
SELECT $1, ($2::text[])[k], 'r-' || n || '-' || k, 1, 2 + n * $3 + k, 't-' || n / 10, 'router', 1, 2,
       jsonb_build_object('reasoning', 'what was read before says so', 'n', n), sha256((n || '-' || k)::bytea), id
FROM made CROSS JOIN generate_series(1, $3::int) AS k
"""
_SOURCES = """
INSERT INTO sources (project, store, id, version, commit_id, cited, shared)
SELECT $1, CASE WHEN n = 0 THEN 'entities' ELSE ($2::text[])[1 + r % $3] END,
       CASE WHEN n = 0 THEN 'source' ELSE 'r-' || before || '-' || 1 + r % $3 END, 1, id, r % 3 = 0, false
FROM made CROSS JOIN generate_series(0, $4::int - 1) AS r
CROSS JOIN LATERAL (
    SELECT CASE WHEN r < $3 THEN (n - 1) / 4 ELSE (n * 7919::bigint + r * 104729) % greatest(n, 1) END AS before) AS of
ON CONFLICT DO NOTHING
"""


async def _fill(place: Small, project: str, commits: int) -> int:
    """A project in which all rests on one source; how many edges it has."""
    record = place.record
    await record.execute("DROP TABLE IF EXISTS made")
    await record.execute(_COMMITS.replace("$1", str(commits)))
    await record.execute(_SOURCE, project)
    await record.execute(_RECORDS, project, list(STORES), WRITES)
    await record.execute(_SOURCES, project, list(STORES), WRITES, READS)
    await record.execute("INSERT INTO projects (project, last_seq) VALUES ($1, $2)", project, commits * WRITES + 10)
    edges: int = await record.fetchval("SELECT count(*) FROM sources WHERE project = $1", project)
    return edges


def _patient(place: Small, project: str) -> Memory:
    """Memory for a person who waits longer than a service does: what takes long is to be measured too."""
    origin = Origin(message_id=new_id(), fence=1, project=project, principal="administrator")
    request = place.router.connection.request
    return Memory(request, "router", origin, utc_now(), query_timeout_s=PATIENCE_S, commit_timeout_s=PATIENCE_S)


async def measured(folder: Path, size: Size, report: Report) -> None:
    """The rows about taking back."""
    traced, taken, edges = [], [], 0
    async with small(folder / "stack") as place:
        for run in range(1, size.runs + 1):
            project = f"bench-{run}"
            say(f"project {run} of {size.runs}")
            edges = await _fill(place, project, size.commits)
            await place.record.execute("VACUUM ANALYZE records, sources")
            report.note_load()
            memory = _patient(place, project)
            began = time.perf_counter()
            (found,) = await memory.query(RestsOn(store="entities", id="source", limit=LIMIT))
            traced.append(time.perf_counter() - began)
            assert found.report is not None
            assert found.report["items"], found
            wish = Write(store="quarantines", id=new_id(), body={
                "kind": "quarantine", "store": "entities", "id": "source", "reason": "it is wrong",
            })  # fmt: skip
            person = _patient(place, project)
            began = time.perf_counter()
            await person.step(Commit(writes=(wish,)))
            taken.append(time.perf_counter() - began)
            left = await place.record.fetchval(
                "SELECT count(*) FROM records WHERE project = $1 AND store = ANY ($2) AND body IS NOT NULL",
                project,
                [*STORES, "entities"],
            )
            assert left == 0, left
    records = size.commits * WRITES
    report.measures += [
        Measure(f"what rests on one source, over {edges} edges", "s", tuple(traced), 1.0),
        Measure(f"quarantine of that source and {records} records", "s", tuple(taken), 1.0),
    ]

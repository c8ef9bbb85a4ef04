"""A wrong source under every record of a project: time to trace what rests on it, and to quarantine it."""

import time
from pathlib import Path

from counterpoint.bench.bench_stack import BenchStack, bench_stack
from counterpoint.bench.report import BenchReport, Measurement, progress
from counterpoint.bench.sections.size import SectionSize
from counterpoint.client import Memory, put, record
from counterpoint.proto.approvals import STORE as APPROVALS
from counterpoint.proto.approvals import Approval, ApprovalDecision
from counterpoint.proto.commands import TakeBackMemory
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Commit, Dependents, Origin, TakeBack, Write
from counterpoint.proto.messages import utc_now
from counterpoint.proto.principals import Principal
from counterpoint.proto.subjects import DEFAULT_PROJECT

READS = 20
WRITES = 2
STORES = ("actions", "decisions")
TIMEOUT_S = 60
LIMIT = 5_000
"""Items of one page; all of them are found before."""

# Commit `n` reads the records of commit `(n - 1) / 4` and of others before it; commit 0 reads the source.
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
       jsonb_build_object('reasoning', 'the records read before say so', 'n', n), sha256((n || '-' || k)::bytea), id
FROM made CROSS JOIN generate_series(1, $3::int) AS k
"""
_READ_SETS = """
INSERT INTO read_sets (project, commit_id, reads)
SELECT $1, id, jsonb_agg(DISTINCT jsonb_build_array(
    CASE WHEN n = 0 THEN 'entities' ELSE ($2::text[])[1 + r % $3] END,
    CASE WHEN n = 0 THEN 'source' ELSE 'r-' || before || '-' || 1 + r % $3 END,
    1, NULL, CASE WHEN r % 3 = 0 THEN 'cited' ELSE 'shown' END, false))
FROM made CROSS JOIN generate_series(0, $4::int - 1) AS r
CROSS JOIN LATERAL (
    SELECT CASE WHEN r < $3 THEN (n - 1) / 4 ELSE (n * 7919::bigint + r * 104729) % greatest(n, 1) END AS before) AS of
GROUP BY id
"""


async def _fill(bench: BenchStack, project: str, commits: int) -> int:
    """Fill a project in which every record rests on one source; return the number of edges."""
    record = bench.postgres
    await record.execute("DROP TABLE IF EXISTS made")
    await record.execute(_COMMITS.replace("$1", str(commits)))
    await record.execute(_SOURCE, project)
    await record.execute(_RECORDS, project, list(STORES), WRITES)
    await record.execute(_READ_SETS, project, list(STORES), WRITES, READS)
    await record.execute("INSERT INTO projects (project, last_seq) VALUES ($1, $2)", project, commits * WRITES + 10)
    edges: int = await record.fetchval(
        "SELECT sum(jsonb_array_length(reads)) FROM read_sets WHERE project = $1", project
    )
    return edges


def _client(bench: BenchStack, project: str, principal: str = "administrator") -> Memory:
    """Return a client with a long timeout, so that slow requests are measured too."""
    origin = Origin(message_id=new_id(), fence=1, project=project, principal=principal)
    request = bench.router.connection.request
    return Memory(request, "router", origin, utc_now(), query_timeout_s=TIMEOUT_S, commit_timeout_s=TIMEOUT_S)


async def _approve(bench: BenchStack, project: str, approval_id: str) -> None:
    """Approve a large act as another person than the one who measures."""
    person = Principal(name=f"second-{project}", kind="person", projects=(project,), roles=("approve", "read"))
    write = Write(store="principals", id=person.name, body=person.model_dump(mode="json", exclude_none=True))
    await _client(bench, DEFAULT_PROJECT).step(Commit(writes=(write,)))
    memory = _client(bench, project, person.name)
    item = await memory.get(APPROVALS, approval_id)
    assert item is not None
    approval = record(item, Approval)
    decision = ApprovalDecision(decision="approved", artifact_sha256=approval.artifact_sha256)
    after = approval.decided(decision, person.name, "person", utc_now())
    await memory.step(Commit(writes=(put(APPROVALS, approval_id, after, existing=item),)))


async def measure(folder: Path, size: SectionSize, report: BenchReport) -> None:
    """Measure tracing and quarantine."""
    traced, quarantined, edges = [], [], 0
    async with bench_stack(folder / "stack") as bench:
        for run in range(1, size.runs + 1):
            project = f"bench-{run}"
            progress(f"project {run} of {size.runs}")
            edges = await _fill(bench, project, size.commits)
            await bench.postgres.execute("VACUUM ANALYZE records, sources")
            report.note_load()
            memory = _client(bench, project)
            began = time.perf_counter()
            (found,) = await memory.query(Dependents(store="entities", id="source", limit=LIMIT))
            traced.append(time.perf_counter() - began)
            assert found.report is not None
            assert found.report["items"], found
            wish = TakeBack(kind="quarantine", store="entities", id="source", reason="it is wrong")
            order = TakeBackMemory(id=new_id(), wish=wish)
            began = time.perf_counter()
            reply = await _client(bench, project).command(order)
            if reply.approval is not None:
                await _approve(bench, project, reply.approval)
                person = _client(bench, project)
                began = time.perf_counter()
                await person.command(order)
            quarantined.append(time.perf_counter() - began)
            left = await bench.postgres.fetchval(
                "SELECT count(*) FROM records WHERE project = $1 AND store = ANY ($2) AND body IS NOT NULL",
                project,
                [*STORES, "entities"],
            )
            assert left == 0, left
    records = size.commits * WRITES
    report.measures += [
        Measurement(f"records that rest on one source, over {edges} edges", "s", tuple(traced), 1.0),
        Measurement(f"quarantine of that source and {records} records", "s", tuple(quarantined), 1.0),
    ]

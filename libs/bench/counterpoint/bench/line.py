"""`counterpoint bench line`: read the line of a task with 100 actions, from the record and by Cypher.

Each query runs in the query room of memory, in this process, beside the same query on the engine alone.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import ladybug

from counterpoint import bus
from counterpoint.bench.command_line import bench_folder
from counterpoint.bench.report import BenchReport, Measurement, median_ms, progress
from counterpoint.guard.policy import policy
from counterpoint.local.postgres import PostgresUrls, run_postgres
from counterpoint.memory.access import diode
from counterpoint.memory.audit.auditor import Auditor
from counterpoint.memory.audit.note import NoteKey
from counterpoint.memory.audit.sequencer import Sequencer
from counterpoint.memory.commit.pipeline import EmbeddingPipeline
from counterpoint.memory.projection.projections import Tiers, embedded_or_server
from counterpoint.memory.provenance.influence import Influence
from counterpoint.memory.query.as_of import AsOfReader
from counterpoint.memory.query.executor import QueryExecutor
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.functions import SEARCH_PATH
from counterpoint.memory.record.migrate import migrate
from counterpoint.memory.search.vectors import SearchEngine
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Cypher, Line, MemoryQuery

TASKS = 10
ACTIONS = 100
SAMPLES = 50
RUNS = 3
PROJECT = "bench"
WHOLE = """
MATCH (a:Action)-[:PART_OF]->(:Task {task_id: $task})
RETURN a.seq, a.action_id, a.agent, a.kind, a.reasoning, a.result, a.at ORDER BY a.seq
"""
CHILDREN = "MATCH (:Action {action_id: $id})-[:LEADS_TO]->(b:Action) RETURN b.action_id"
DEPTH = (
    "MATCH p = (:Action {action_id: $id})-[:LEADS_TO* SHORTEST 1..200]->(:Action {action_id: $last}) RETURN length(p)"
)
RAW = "SELECT id, body FROM records WHERE project = $1 AND store = 'actions' AND task_id = $2 ORDER BY seq"

_PROJECT = "INSERT INTO projects (project, last_seq) VALUES ($1, $2)"
_TASKS = """
INSERT INTO records (project, store, id, version, seq, task_id, author, label, integrity, body, sha256, commit_id)
SELECT $1::text, 'tasks', 't-' || t, 1, t * ($3::int + 1) + 1, 't-' || t, 'manager', 1, 2,
       jsonb_build_object('task_id', 't-' || t, 'project', $1::text, 'kind', 'question', 'state', 'working',
                          'description', '', 'submitted_by', 'a', 'submitted_at', '2026-01-01T00:00:00Z'),
       sha256(t::text::bytea), gen_random_uuid()
FROM generate_series(0, $2::int - 1) AS t
"""
_ACTIONS = """
INSERT INTO records (project, store, id, version, seq, task_id, author, label, integrity, body, sha256, commit_id)
SELECT $1::text, 'actions', 't-' || t || '-' || n, 1, t * ($3::int + 1) + n + 2, 't-' || t, 'router', 1, 2,
       jsonb_build_object('action_id', 't-' || t || '-' || n, 'task_id', 't-' || t, 'agent', 'router',
                          'kind', 'search', 'reasoning',
                          'looked at the log and found the same error there, twice in an hour',
                          'after', CASE WHEN n = 0 THEN '[]'::jsonb ELSE jsonb_build_array('t-' || t || '-' || n - 1)
                                   END, 'at', '2026-11-20T12:00:00Z'),
       sha256((t || '-' || n)::bytea), gen_random_uuid()
FROM generate_series(0, $2::int - 1) AS t CROSS JOIN generate_series(0, $3::int - 1) AS n
"""

Call = Callable[[], Awaitable[object]]
RawGraph = Callable[[str, dict[str, str]], Awaitable[int]]


@asynccontextmanager
async def superuser_connection(urls: PostgresUrls) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """Connect without row-level security."""
    url = urls.admin.removesuffix("/postgres") + "/" + urls.owner.rpartition("/")[2]
    connection = await asyncpg.connect(url, server_settings={"search_path": SEARCH_PATH})
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def memory_queries(urls: PostgresUrls, folder: Path) -> AsyncIterator[tuple[QueryExecutor, Tiers]]:
    """Wire the query room of memory over a database, with its projections in `folder`. It reads only: no lease."""
    database, rules, search = (
        Database(urls.memory, pool_size=8, connect_timeout_s=5),
        policy(),
        SearchEngine(None, None),
    )
    await database.open()
    tiers = embedded_or_server(database, rules, search, folder, None, None)
    queries = QueryExecutor(
        database,
        rules,
        search,
        AsOfReader(rules, EmbeddingPipeline(database, rules, search)),
        Influence(database),
        tiers,
        Auditor(database, Sequencer(database, NoteKey("5e" * 32), ()), ()),
    )
    following = asyncio.create_task(tiers.run())
    try:
        yield queries, tiers
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await tiers.close()
        await database.close()


async def built_graph(urls: PostgresUrls, folder: Path) -> Path:
    """Build the graph of the project, and return a copy of its database."""
    async with memory_queries(urls, folder) as (_, tiers):
        if not await tiers.graph.caught_up(PROJECT, 30):
            raise TimeoutError("the graph is behind the record")
    copy = folder / "copy"
    shutil.copytree(folder / "graph" / PROJECT / "live", copy)
    return copy / "line.lbug"


@contextmanager
def raw_graph(path: Path) -> Iterator[RawGraph]:
    """Open a graph database on this thread. A call runs a query and returns the number of its rows."""
    with ladybug.Database(path, max_num_threads=1) as database, ladybug.Connection(database) as reader:
        reader.execute("CALL var_length_extend_max_depth=200")

        async def rows(query: str, parameters: dict[str, str]) -> int:
            with reader.execute(query, parameters) as answer:  # type: ignore[union-attr]
                return len(list(answer))

        yield rows


async def measure_line(
    queries: QueryExecutor, record: "asyncpg.Connection[asyncpg.Record]", graph: RawGraph, report: BenchReport
) -> None:
    """Measure each query beside the engine alone, in turn."""
    task, ids = "t-9", [f"t-9-{n}" for n in range(ACTIONS)]
    whole, middle, last = {"task": task}, {"id": ids[40]}, {"id": ids[0], "last": ids[-1]}
    request = diode.AccessRequest("router", PROJECT, None, new_id(), datetime.now(UTC))
    grant = diode.standing(policy(), request, None)

    def through_memory(query: MemoryQuery) -> Call:
        return lambda: queries.answer(grant, (query,))

    ours: list[tuple[str, Call, float | None]] = [
        ("the whole line from the record", through_memory(Line(task_id=task)), 1),
        ("the whole line by Cypher", through_memory(Cypher(query=WHOLE, parameters=whole)), 3),
        ("the children of an action by Cypher", through_memory(Cypher(query=CHILDREN, parameters=middle)), 3),
        ("the length of the chain by Cypher", through_memory(Cypher(query=DEPTH, parameters=last)), None),
    ]
    if await graph(WHOLE, whole) != ACTIONS:
        raise ValueError("the graph does not hold the whole line")
    raw: list[Call] = [
        lambda: record.fetch(RAW, PROJECT, task),
        lambda: graph(WHOLE, whole),
        lambda: graph(CHILDREN, middle),
        lambda: graph(DEPTH, last),
    ]
    for (name, call, target), bare in zip(ours, raw, strict=True):
        progress(name)
        medians, limits = [], []
        for _ in range(RUNS):
            report.note_load()
            medians.append(await median_ms(call, SAMPLES))
            limits.append(await median_ms(bare, SAMPLES))
        report.measures.append(Measurement(f"{name}, p50", "ms", tuple(medians), target))
        report.measures.append(Measurement(f"{name}, p50, the engine alone", "ms", tuple(limits), None))


async def run(folder: Path) -> BenchReport:
    """Run the benchmark on a PostgreSQL of its own."""
    report = BenchReport("line")
    async with run_postgres(folder / "postgres") as postgres:
        await migrate(postgres.urls.owner)
        async with superuser_connection(postgres.urls) as record:
            await record.execute(_PROJECT, PROJECT, TASKS * (ACTIONS + 1))
            await record.execute(_TASKS, PROJECT, TASKS, ACTIONS)
            await record.execute(_ACTIONS, PROJECT, TASKS, ACTIONS)
            await record.execute("VACUUM ANALYZE records")
            path = await built_graph(postgres.urls, folder / "tiers")
            async with memory_queries(postgres.urls, folder / "tiers") as (queries, _):
                with raw_graph(path) as graph:
                    await measure_line(queries, record, graph, report)
    return report


def main() -> None:
    """Run the command line."""
    with bench_folder("line") as folder:
        bus.run(run(folder)).show()


if __name__ == "__main__":
    main()

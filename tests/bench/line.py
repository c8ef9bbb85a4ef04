"""The line of a task of 100 actions: from the record and by Cypher, each in the service beside its raw engine."""

import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import ladybug

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.measure import Measure, Report, p50, quiet_logs, say, stop_when_told
from diode.memory_house import House, task_body

from counterpoint import bus
from counterpoint.local.postgres import run_postgres
from counterpoint.memory.migrate import migrate
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Cypher, Line, MemoryQuery, Write

ACTIONS = 100
ASKED = 200
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


async def _p50_ms(ask: Callable[[], Awaitable[object]]) -> float:
    took = []
    for _ in range(ASKED):
        began = time.perf_counter()
        await ask()
        took.append((time.perf_counter() - began) * 1000)
    return p50(took)


async def _line(house: House, task: str) -> list[str]:
    handed = house.handed(await house.routed(PROJECT, task))
    await house.done("manager", handed, writes=(Write(store="tasks", id=task, body=task_body(task)),))
    ids = [f"{task}-{n:03}" for n in range(ACTIONS)]
    for start in range(0, ACTIONS, 20):
        writes = tuple(
            Write(
                store="actions",
                id=ids[n],
                body={
                    "action_id": ids[n],
                    "task_id": task,
                    "agent": "router",
                    "kind": "search",
                    "reasoning": "looked at the log and found the same error there, twice in an hour",
                    "after": ids[n - 1 : n] if n else [],
                    "at": "2026-11-20T12:00:00Z",
                },
            )
            for n in range(start, start + 20)
        )
        await house.done("router", house.standing(PROJECT, task), writes=writes)
    return ids


@asynccontextmanager
async def _raw(house: House) -> AsyncIterator[Callable[[str, dict[str, str]], Awaitable[int]]]:
    """The engine on a copy of the database, on this thread."""
    with tempfile.TemporaryDirectory() as folder:
        assert await house.tiers.graph.caught_up(PROJECT, 30)
        await house.unfollow()
        copy = Path(folder) / "copy"
        shutil.copytree(house.folder / "graph" / PROJECT / "live", copy)
        await house.refollow()
        with ladybug.Database(copy / "line.lbug", max_num_threads=1) as database, ladybug.Connection(database) as asked:
            asked.execute("CALL var_length_extend_max_depth=200")

            async def ask(query: str, parameters: dict[str, str]) -> int:
                with asked.execute(query, parameters) as answer:  # type: ignore[union-attr]
                    return len(list(answer))

            yield ask


async def _measured(house: House, report: Report) -> None:
    for _ in range(9):
        await _line(house, new_id())
    task = new_id()
    ids = await _line(house, task)
    whole, middle, last = {"task": task}, {"id": ids[40]}, {"id": ids[0], "last": ids[-1]}
    grant, _ = await house.door.authorise("router", house.standing(PROJECT))

    def asking(query: MemoryQuery) -> Callable[[], Awaitable[object]]:
        return lambda: house.queries.answer(grant, (query,))

    ours: list[tuple[str, Callable[[], Awaitable[object]], float | None]] = [
        ("the whole line from the record", asking(Line(task_id=task)), 1),
        ("the whole line by Cypher", asking(Cypher(query=WHOLE, parameters=whole)), 3),
        ("the children of an action by Cypher", asking(Cypher(query=CHILDREN, parameters=middle)), 3),
        ("the length of the chain by Cypher", asking(Cypher(query=DEPTH, parameters=last)), None),
    ]
    async with house.superuser() as connection, _raw(house) as graph:
        assert await graph(WHOLE, whole) == ACTIONS
        raw: list[Callable[[], Awaitable[object]]] = [
            lambda: connection.fetch(RAW, PROJECT, task),
            lambda: graph(WHOLE, whole),
            lambda: graph(CHILDREN, middle),
            lambda: graph(DEPTH, last),
        ]
        for (name, ask, target), bare in zip(ours, raw, strict=True):
            say(name)
            found, beside = [], []
            for _ in range(RUNS):
                report.note_load()
                found.append(await _p50_ms(ask))
                beside.append(await _p50_ms(bare))
            report.measures.append(Measure(f"{name}, p50", "ms", tuple(found), target))
            report.measures.append(Measure(f"{name}, p50, the engine alone", "ms", tuple(beside), None))


async def run(folder: Path) -> Report:
    """Everything."""
    report = Report("line")
    async with run_postgres(folder / "postgres") as postgres:
        await migrate(postgres.urls.owner)
        house = House(postgres.urls)
        await house.open()
        try:
            await _measured(house, report)
        finally:
            await house.close()
    return report


if __name__ == "__main__":
    quiet_logs()
    stop_when_told()
    with tempfile.TemporaryDirectory(prefix="counterpoint-") as place:
        bus.run(run(Path(place))).show()

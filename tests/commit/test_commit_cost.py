"""The rows that a commit reads and the time that it may take."""

from pathlib import Path
from typing import Any

import pytest
from memory_service.house import DELEGATED, WORKED, House, running_house, task_body

from counterpoint.memory.commit import statement
from counterpoint.proto.memory import Outgoing, Write

PROJECT = "orders"
_ROWS_READ = """
SELECT sum(pg_stat_get_xact_tuples_returned(oid) + pg_stat_get_xact_tuples_fetched(oid))
FROM pg_class WHERE relname IN ('inbox', 'records', 'messages', 'pending')
"""


@pytest.mark.parametrize("analyzed", [False, True])
async def test_a_commit_reads_no_more_rows_in_a_large_project_than_in_a_small_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, analyzed: bool
) -> None:
    """Without statistics the planner takes every table for empty, and would rather read all of a project at once."""
    async with running_house(tmp_path) as house:
        async with house.superuser() as connection:
            # Statistics of a table that was small for a moment count until the next ones.
            await connection.execute("ALTER SYSTEM SET autovacuum = off")
            await connection.execute("SELECT pg_reload_conf()")
        call = house.committer._call
        read: list[int] = []

        async def counted(connection: Any, place: str, steps: Any) -> Any:
            async with connection.transaction():
                before = await connection.fetchval(_ROWS_READ)
                found = await call(connection, place, steps)
                read.append(await connection.fetchval(_ROWS_READ) - before)
            return found

        async def task(name: str) -> None:
            manager = house.delivery(await house.routed(PROJECT, name))
            write = Write(store="tasks", id=name, body=task_body(name))
            made = await house.apply(
                "manager", manager, writes=(write,), messages=(Outgoing(type=DELEGATED, data={"task_id": name}),)
            )
            developer = house.delivery(made.message_ids[0])
            await house.apply("developer", developer, messages=(Outgoing(type=WORKED, data={"task_id": name}),))

        for n in range(300):
            await task(f"t-{n}")
        if analyzed:
            async with house.superuser() as connection:
                await connection.execute("ANALYZE")
        monkeypatch.setattr(house.committer, "_call", counted)
        await task("t-last")
    assert len(read) == 3
    assert max(read) < 30


async def test_the_more_a_commit_writes_the_longer_it_may_take(
    house: House, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what is very large could never be erased or taken back."""
    manager = house.delivery(await house.routed(project, "t-1"))
    monkeypatch.setattr(statement, "_STATEMENT_S", 0.0)
    monkeypatch.setattr(statement, "_WRITE_S", 0.1)
    plans = tuple(Write(store="plans", id=f"p-{n}", body={"text": "x"}) for n in range(200))
    await house.apply("manager", manager, writes=plans)
    assert await house.body(project, "plans", "p-199") == {"text": "x"}

"""Three fences between projects, each of which stands alone: rows, the diode, the bus. Two are taken away in turn."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from bus.lone_bus import CONFIG, answering, provisioned
from bus.plain import login
from bus.rights import MINE, OTHERS
from memory_service.house import House
from memory_service.learning_project import ingest, learn

from counterpoint.bus.permissions import permissions
from counterpoint.guard.policy import policy
from counterpoint.memory.access import diode
from counterpoint.memory.record.functions import SEARCH_PATH
from counterpoint.proto.memory import EdgeWalk, Get, HybridSearch, Line, List, VectorSearch, Write

if TYPE_CHECKING:
    from pathlib import Path

    Connection = asyncpg.Connection[asyncpg.Record]

OPEN = {"projects", "pending", "linked", "extracted"}
"""Tables with a column `project` that hold no content, and are read across projects."""
CLOSED = {"organisation_reservations"}
"""Tables that no service may read."""
SPOKEN = ("lexicon", "corpora", "postings", "vectors")
"""Tables that give a search its scores."""
QUERIES = (
    Get(store="tasks", id="t-1"),
    List(store="tasks"),
    List(store="attempts"),
    Line(task_id="t-1"),
    EdgeWalk(store="edges", start=("a",)),
    VectorSearch(store="chunks", text="restart the worker"),
    HybridSearch(store="attempts", text="what the runbook says"),
)


async def fill_project(house: House, project: str) -> None:
    """A project with something in every tier."""
    await ingest(house, project, f"To repair the orders pipeline of {project}, restart the worker.")
    await learn(house, project, "t-1")
    edge = Write(store="edges", id="e", body={"kind": "data", "source": "a", "target": "b"})
    await house.apply("lineage", house.standing(project), writes=(edge,))


async def tables(connection: "Connection") -> list[str]:
    """The tables whose rows belong to projects."""
    rows = await connection.fetch(
        "SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'project'"
        " WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace ORDER BY 1"
    )
    return [row["relname"] for row in rows]


class TestRowsAlone:
    """The diode lets everything through, and the bus is not there."""

    async def test_every_table_that_holds_content_is_fenced_for_its_owner_too(self, house: House) -> None:
        async with house.superuser() as connection:
            forced = await connection.fetch(
                "SELECT relname FROM pg_class WHERE relrowsecurity AND relforcerowsecurity AND relkind = 'r'"
            )
            assert {row["relname"] for row in forced} == set(await tables(connection)) - OPEN - CLOSED
            user = "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = $1"
            for role in ("counterpoint_memory", "counterpoint_inspect", "counterpoint_owner"):
                assert await connection.fetchval(user, role) is False

    @pytest.mark.parametrize("login", ["memory", "inspect"])
    async def test_a_connection_sees_no_row_of_another_project(self, house: House, project: str, login: str) -> None:
        theirs = f"{project}-b"
        await fill_project(house, theirs)
        await fill_project(house, project)
        async with house.superuser() as connection:
            fenced = set(await tables(connection)) - OPEN - CLOSED
            held = {
                table: await connection.fetchval(f"SELECT count(*) FROM {table} WHERE project = $1", theirs)
                for table in fenced
            }
        assert {"records", "messages", "audit", "read_sets", "inbox", *SPOKEN} <= {
            name for name, n in held.items() if n
        }
        connection = await asyncpg.connect(getattr(house.urls, login), server_settings={"search_path": SEARCH_PATH})
        try:
            for table in CLOSED:
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await connection.fetchval(f"SELECT count(*) FROM {table}")
            for fence in (project, "*", "%", "", theirs[:-1], f"{theirs} ", "shared", None):
                await connection.execute("SELECT set_config('counterpoint.project', $1, false)", fence)
                for table in fenced:
                    try:
                        seen = await connection.fetchval(f"SELECT count(*) FROM {table} WHERE project = $1", theirs)
                    except asyncpg.InsufficientPrivilegeError:
                        assert login == "inspect"
                    else:
                        assert seen == 0, (table, fence)
        finally:
            await connection.close()

    async def test_a_connection_changes_no_row_of_another_project(self, house: House, project: str) -> None:
        theirs = f"{project}-b"
        await fill_project(house, theirs)
        connection = await asyncpg.connect(house.urls.memory, server_settings={"search_path": SEARCH_PATH})
        try:
            await connection.execute("SELECT set_config('counterpoint.project', $1, false)", project)
            for table in ("records", "lexicon", "corpora"):
                column = "version" if table == "records" else "rows"
                done = await connection.execute(f"UPDATE {table} SET {column} = 9 WHERE project = $1", theirs)
                assert done == "UPDATE 0"
            for table in SPOKEN:
                assert await connection.execute(f"DELETE FROM {table} WHERE project = $1", theirs) == "DELETE 0"
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
                await connection.execute("INSERT INTO corpora VALUES ($1, 'chunks', 0, 1, 1)", theirs)
        finally:
            await connection.close()

    async def test_without_a_diode_no_foreign_row_is_shown(
        self, house: House, project: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        theirs = f"{project}-b"
        await fill_project(house, theirs)
        sent = await house.delegated(project, "t-2")
        monkeypatch.setattr(diode, "holder", lambda *_: None)
        monkeypatch.setattr(diode, "read", lambda *_: None)
        monkeypatch.setattr(diode, "visible", lambda *_: True)
        for origin in (house.delivery(sent), house.delivery(sent, project=theirs, task_id="t-1")):
            for query in QUERIES:
                reply = await house.query("developer", origin, query)
                assert not any(item.project == theirs for found in reply.found for item in found.items), query


class TestDiodeAlone:
    """The diode without row level security: requests come over the bus, and PostgreSQL shows every row."""

    async def test_without_row_level_security_nothing_foreign_is_shown_or_written(
        self, house: House, project: str
    ) -> None:
        theirs = f"{project}-b"
        await fill_project(house, theirs)
        await fill_project(house, project)
        sent = await house.delegated(project, "t-2")
        async with house.superuser() as connection:
            before = await rows(connection, theirs)
            await connection.execute("ALTER ROLE counterpoint_memory BYPASSRLS")
            await anew(house)
            try:
                memory = await asyncpg.connect(house.urls.memory, server_settings={"search_path": SEARCH_PATH})
                await memory.execute("SELECT set_config('counterpoint.project', $1, false)", project)
                assert await memory.fetchval("SELECT count(*) FROM records WHERE project = $1", theirs) > 0
                await memory.close()
                for query in QUERIES:
                    found = await house.answer("router", house.standing(project), query)
                    assert not any(item.project == theirs for item in found.items), query
                stolen = house.delivery(sent, project=theirs, task_id="t-1")
                for query in QUERIES:
                    await house.refusal("developer", stolen, "project", query)
                write = Write(store="attempts", id="t-1-1", body={"task_id": "t-1"}, expect=1)
                await house.refusal("developer", stolen, "project", writes=(write,))
                for caller in ("router", "manager"):
                    await house.refusal(caller, house.delivery(sent), "audience", Get(store="tasks", id="t-2"))
            finally:
                await connection.execute("ALTER ROLE counterpoint_memory NOBYPASSRLS")
                await anew(house)
            assert await rows(connection, theirs) == before

    def test_a_foreign_record_is_hidden_even_if_the_database_returns_it(self) -> None:
        grant = diode.own(policy(), "demo", "m", datetime(2026, 1, 1, tzinfo=UTC))
        for store, row in policy().stores.items():
            assert not diode.visible(policy(), grant, store, "t-1", "other", 0)
            assert diode.visible(policy(), grant, store, "t-1", "shared", 0) == row.shared


async def anew(house: House) -> None:
    """Memory reads over new connections: statements that are prepared keep the fence that they were planned with."""
    pool = house.database._pool
    assert pool is not None
    await pool.expire_connections()


async def rows(connection: "Connection", project: str) -> Any:
    """All records of a project."""
    found = await connection.fetch("SELECT store, id, version, body FROM records WHERE project = $1", project)
    return {tuple(row) for row in found}


class TestBusAlone:
    """Memory answers whoever asks, whatever they ask, and keeps nothing to itself."""

    async def test_a_stolen_login_of_the_developer_has_only_its_own_rights(self, tmp_path: "Path") -> None:
        async with provisioned(tmp_path, CONFIG) as bus, answering(bus) as memory:
            held = await bus.held()
            async with login(bus.port, "developer", bus.passwords["developer"]) as stolen:
                for caller in ("router", "manager", "lineage", "memory", "developer.x"):
                    for request in ("query", "commit.0", "ingest", "put"):
                        assert not await stolen.may_publish(f"memory.{caller}.{request}")
                for project in (MINE, OTHERS):
                    for subject in (
                        *(f"tasks.{project}.{event}" for event in ("routed", "delegated", "worked", "completed")),
                        *(f"{stream}.{project}.x" for stream in ("decisions", "changes", "dead", "live.tasks")),
                        f"intake.{project}.task",
                    ):
                        assert not await stolen.may_publish(subject)
                    for subject in (
                        f"tasks.{project}.>",
                        f"live.tasks.{project}.>",
                        f"decisions.{project}.*",
                        f"intake.{project}.*",
                        "memory.*.query",
                        "_INBOX_router.>",
                        ">",
                    ):
                        assert not await stolen.may_subscribe(subject)
                assert await stolen.may_publish("memory.developer.query")
            async with await bus.client("developer") as client:
                await client.request("memory.developer.query", b"{}", timeout=5)
            assert set(memory.asked) == {"developer"}
            assert await bus.held() == held

    def test_the_rights_on_the_bus_come_from_the_policy(self) -> None:
        rules = policy()
        without = rules.model_copy(
            update={"services": {name: row for name, row in rules.services.items() if name != "developer"}}
        )
        assert "developer" in permissions(rules)
        assert "developer" not in permissions(without)
        assert set(permissions(rules)) == {*rules.services, *rules.nats}


class TestStatistics:
    async def test_term_statistics_are_counted_per_project(self, house: House, project: str) -> None:
        theirs = f"{project}-b"
        await fill_project(house, project)
        counted = "SELECT 'l', store, term, label, rows FROM lexicon WHERE project = $1 UNION ALL" \
            " SELECT 'c', store, length::text, label, rows FROM corpora WHERE project = $1"  # fmt: skip
        async with house.superuser() as connection:
            before = {tuple(row) for row in await connection.fetch(counted, project)}
            await fill_project(house, theirs)
            assert {tuple(row) for row in await connection.fetch(counted, project)} == before
            assert before
            at = "SELECT count(*) FROM postings p JOIN vectors v USING (row) WHERE p.project <> v.project"
            assert await connection.fetchval(at) == 0

    async def test_each_project_has_an_episodic_index_and_a_graph_of_its_own(self, house: House, project: str) -> None:
        theirs = f"{project}-b"
        for place in (project, theirs):
            sent = await house.delegated(place, "t-1")
            episode = Write(store="coder_memory", id="e", body={"agent": "developer", "text": f"of {place}"})
            await house.apply("developer", house.delivery(sent), writes=(episode,))
            assert await house.tiers.episodic.caught_up(place, 30)
            found = await house.answer(
                "manager",
                house.delivery(await house.routed(place, "t-2")),
                VectorSearch(store="coder_memory", text="of"),
            )
            assert [item.body["text"] for item in found.items] == [f"of {place}"]
            assert found.plan == "nearest"
        folders = {path.name for path in house.folder.rglob("*") if path.is_dir()}
        assert {project, theirs} <= folders

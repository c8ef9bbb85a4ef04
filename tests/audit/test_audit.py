"""The audit log finds what was changed behind memory's back, and PostgreSQL itself keeps memory to its project."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memory_service.house import House, task_body
from memory_service.leaves import store_leaves_as_text

from counterpoint.memory.audit import auditor
from counterpoint.memory.audit.check import checked
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import List, Write

CONTENT = (
    "records",
    "history",
    "messages",
    "inbox",
    "read_sets",
    "audit",
    "vectors",
    "embeddings",
    "blobs",
    "blob_parts",
)
INSERT_ONLY = ("records", "history", "messages", "inbox", "read_sets", "audit")


@asynccontextmanager
async def tampered(house: House, project: str, table: str, statement: str) -> AsyncIterator[None]:
    """As if somebody had run `statement` on the database; afterwards as if not."""
    async with house.superuser() as connection:
        columns = await connection.fetchval(WRITTEN, table)
        await connection.execute(f"CREATE TEMP TABLE before AS SELECT {columns} FROM {table}")
        try:
            assert await connection.execute(statement.format(project=f"'{project}'")) not in ("UPDATE 0", "DELETE 0")
            yield
        finally:
            await connection.execute(f"DELETE FROM {table}")
            await connection.execute(f"INSERT INTO {table} ({columns}) SELECT * FROM before")


async def story(house: House, project: str) -> None:
    """A task at its second version, a refusal, and a commit after it."""
    await house.delegated(project, "t-1")
    second = Write(store="tasks", id="t-1", body=task_body("t-1", n=2), expect=1)
    await house.apply("manager", house.delivery(await house.reported(project, "t-1")), writes=(second,))
    await house.refusal("router", house.standing(project), "store", writes=(second,))
    await house.apply("router", house.standing(project), writes=(Write(store="submissions", id="s", body={"n": 1}),))
    await house.sequencer.once()


WRITTEN = """
SELECT string_agg(attname, ', ') FROM pg_attribute
WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
"""
OTHER = """'{{"n": 9}}'"""
OF_RECORD = "WHERE project = {project} AND store = 'submissions'"
OF_IT = "FROM audit WHERE project = {project}"
FIRST, LAST = f"(SELECT min(position) {OF_IT})", f"(SELECT max(position) {OF_IT})"
RENAMED = "body = replace(body, 'router', 'lineage')"
REHASHED = "leaf = sha256(salt || convert_to(replace(body, 'router', 'lineage'), 'UTF8'))"


@pytest.fixture(scope="module")
async def verified_project(house: House) -> str:
    """A project with a story and a log that verifies."""
    project = f"p-{new_id()}"
    await story(house, project)
    async with house.superuser() as connection:
        await store_leaves_as_text(connection, f"project = '{project}'")
    before = await house.verify(project)
    assert (before["ok"], before["refusals"], before["records"]) == (True, 1, 3)
    return project


class TestTampering:
    """Each change is taken back, so all of them are made to one log."""

    @pytest.mark.parametrize(
        ("table", "statement"),
        [
            ("records", f"UPDATE records SET body = body || {OTHER} {OF_RECORD}"),
            ("records", f"UPDATE records SET version = 7 {OF_RECORD}"),
            ("records", f"UPDATE records SET id = 'other' {OF_RECORD}"),
            ("records", f"UPDATE records SET body = NULL {OF_RECORD}"),
            ("records", f"UPDATE records SET label = label + 1 {OF_RECORD}"),
            ("records", f"UPDATE records SET integrity = integrity - 1 {OF_RECORD}"),
            ("records", f"UPDATE records SET author = 'manager' {OF_RECORD}"),
            ("records", f"UPDATE records SET task_id = 't-9' {OF_RECORD}"),
            ("records", f"UPDATE records SET schema_version = 2 {OF_RECORD}"),
            ("records", f"UPDATE records SET sha256 = sha256('') {OF_RECORD}"),
            ("records", f"UPDATE records SET commit_id = gen_random_uuid() {OF_RECORD}"),
            ("history", "UPDATE history SET label = 0 WHERE project = {project}"),
            ("history", "UPDATE history SET integrity = 0 WHERE project = {project}"),
            ("history", "UPDATE history SET task_id = NULL WHERE project = {project}"),
            ("messages", "UPDATE messages SET label = label + 1 WHERE project = {project}"),
            ("messages", "UPDATE messages SET audience = '{{router}}' WHERE project = {project}"),
            ("messages", "UPDATE messages SET type = 'counterpoint.task.due.v1' WHERE project = {project}"),
            ("messages", "UPDATE messages SET task_id = 't-9' WHERE project = {project}"),
            ("history", f"UPDATE history SET body = body || {OTHER} WHERE project = {{project}}"),
            ("audit", f"DELETE FROM audit WHERE position = {FIRST}"),
            ("audit", f"DELETE FROM audit WHERE position = {LAST}"),
            ("audit", "DELETE FROM audit WHERE project = {project} AND kind = 'refusal'"),
            ("audit", f"UPDATE audit SET {RENAMED} WHERE position = {FIRST}"),
            ("audit", f"UPDATE audit SET {RENAMED}, {REHASHED} WHERE position = {FIRST}"),
            ("audit", f"UPDATE audit SET salt = '\\x00' WHERE position = {LAST}"),
            ("audit", f"UPDATE audit SET previous = leaf WHERE position = {LAST}"),
            ("audit", f"UPDATE audit SET leaf = sha256(leaf) WHERE position = {FIRST}"),
            ("audit", f"UPDATE audit SET leaf = NULL WHERE position = {FIRST}"),
            ("audit", f"UPDATE audit SET kind = 'refusal' WHERE position = {LAST}"),
            ("audit", f"UPDATE audit SET task_id = 't-2' WHERE position = {LAST}"),
            ("audit_head", "UPDATE audit_head SET position = position - 1"),
        ],
    )  # fmt: skip
    async def test_tampering_is_found(self, house: House, verified_project: str, table: str, statement: str) -> None:
        async with tampered(house, verified_project, table, statement):
            report = await house.verify(verified_project)
            assert not report["ok"]
            assert report["broken"]
        assert (await house.verify(verified_project))["ok"]

    @pytest.mark.parametrize(
        ("table", "statement"),
        [
            ("records", "DELETE FROM records WHERE project = {project} AND store = 'submissions'"),
            ("history", "DELETE FROM history WHERE project = {project}"),
            ("messages", "UPDATE messages SET body = '{{}}' WHERE project = {project}"),
        ],
        ids=["a record is deleted", "a superseded version is deleted", "a message is changed"],
    )
    async def test_deleted_rows_and_changed_messages_are_found(
        self, house: House, verified_project: str, table: str, statement: str
    ) -> None:
        async with tampered(house, verified_project, table, statement):
            assert not (await house.verify(verified_project))["ok"]
        assert (await house.verify(verified_project))["ok"]

    async def test_a_change_in_another_project_is_found_in_the_chain(
        self, house: House, verified_project: str, project: str
    ) -> None:
        statement = f"UPDATE audit SET {RENAMED} WHERE position = {FIRST}"
        async with tampered(house, verified_project, "audit", statement):
            assert not (await house.verify(project))["ok"]


BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%audit_tiles%'"


async def test_commits_continue_during_a_long_check(
    house: House, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped where it reads the tiles; others commit in the same project meanwhile, and it sees none of that."""
    monkeypatch.setattr(auditor, "checked", checked)
    await story(house, project)
    await house.sequencer.once(sign=True)
    async with house.superuser() as connection, house.superuser() as observer:
        async with connection.transaction():
            await connection.execute("LOCK TABLE audit_tiles IN ACCESS EXCLUSIVE MODE")
            checking = asyncio.create_task(house.verify(project))
            async with asyncio.timeout(60):
                while not await observer.fetchval(BLOCKED):  # noqa: ASYNC110 - the database has no event for it
                    await asyncio.sleep(0.01)
            before = await house.answer("router", house.standing(project), List(store="submissions"))
            write = Write(store="submissions", id="meanwhile", body={"n": 1})
            await house.apply("router", house.standing(project), writes=(write,))
            assert not checking.done()
        report = await checking
    assert len(before.items) == 1
    assert (report["broken"], report["records"]) == ([], 3)


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab\u00e9\U0001f600", max_size=2), inner),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(bodies=st.lists(JSON, min_size=1, max_size=25))
async def test_any_written_body_verifies(house: House, bodies: list[Any]) -> None:
    project = f"p-{new_id()}"
    writes = tuple(Write(store="submissions", id=f"s-{n}", body={"v": body}) for n, body in enumerate(bodies))
    await house.apply("router", house.standing(project), writes=writes)
    assert (await house.verify(project))["broken"] == []


class TestRowLevelSecurity:
    @pytest.fixture
    async def memory(self, house: House) -> "AsyncIterator[asyncpg.Connection[asyncpg.Record]]":
        """A connection of memory's own login."""
        connection = await asyncpg.connect(house.urls.memory)
        yield connection
        await connection.close()

    async def test_memorys_login_owns_nothing_and_is_bound_by_the_rules(self, house: House, memory: Any) -> None:
        owned = "SELECT count(*) FROM pg_class WHERE relowner = 'counterpoint_memory'::regrole"
        assert await memory.fetchval(owned) == 0
        role = await memory.fetchrow("SELECT * FROM pg_roles WHERE rolname = current_user")
        assert role["rolname"] == "counterpoint_memory"
        assert not any(role[right] for right in ("rolsuper", "rolbypassrls", "rolcreaterole", "rolcreatedb"))
        assert await memory.fetchval("SELECT count(*) FROM pg_auth_members WHERE member = current_user::regrole") == 0
        forced = await memory.fetch(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace "
            "AND relrowsecurity AND relforcerowsecurity"
        )
        assert {row["relname"] for row in forced} >= set(CONTENT)
        views = await memory.fetch(
            "SELECT relname, 'security_invoker=true' = ANY (reloptions) AS of_invoker FROM pg_class "
            "WHERE relkind = 'v' AND relnamespace = 'public'::regnamespace"
        )
        assert all(row["of_invoker"] for row in views)
        content = await memory.fetch(
            "SELECT DISTINCT table_name FROM information_schema.columns JOIN information_schema.tables "
            "USING (table_schema, table_name) WHERE table_type = 'BASE TABLE' AND table_schema = 'public' "
            "AND column_name IN ('body', 'content', 'embedding', 'reads', 'reply')"
        )
        assert {row["table_name"] for row in content} <= {row["relname"] for row in forced}

    async def test_with_the_fence_set_no_other_project_is_seen_or_touched(
        self, house: House, project: str, memory: Any
    ) -> None:
        theirs = f"{project}-b"
        for place in (project, theirs):
            await story(house, place)
        async with memory.transaction():
            await memory.execute("SELECT set_config('counterpoint.project', $1, true)", project)
            for table in ("records", "current_records", "history", "messages", "inbox", "audit"):
                seen = {row["project"] for row in await memory.fetch(f"SELECT DISTINCT project FROM {table}")}
                assert seen <= {project, "shared"}, table
                assert project in seen, table
                assert await memory.fetchval(f"SELECT count(*) FROM {table} WHERE project = $1", theirs) == 0, table
            moved = await memory.execute("UPDATE records SET body = NULL WHERE project = $1", theirs)
            assert moved == "UPDATE 0"

    @pytest.mark.parametrize("fence", ["", None, "%", "*", "shared"])
    async def test_with_another_fence_nothing_of_a_project_is_seen(
        self, house: House, project: str, memory: Any, fence: str | None
    ) -> None:
        await story(house, project)
        async with memory.transaction():
            if fence is not None:
                await memory.execute("SELECT set_config('counterpoint.project', $1, true)", fence)
            for table in CONTENT:
                assert await memory.fetchval(f"SELECT count(*) FROM {table} WHERE project = $1", project) == 0, table

    @pytest.mark.parametrize("place", ["other", "shared"])
    async def test_a_row_of_another_project_is_not_written(
        self, house: House, project: str, memory: Any, place: str
    ) -> None:
        await story(house, project)
        copied = (
            "INSERT INTO records (project, store, id, version, seq, author, label, integrity, commit_id) "
            "VALUES ($1, 'submissions', 'x', 1, 1, 'memory', 0, 0, $2)"
        )
        await memory.execute("SELECT set_config('counterpoint.project', $1, false)", project)
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
            await memory.execute(copied, place, new_id())
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
            await memory.execute("UPDATE records SET project = $1", place)

    @pytest.mark.parametrize("table", [*INSERT_ONLY, "audit_head", "lease", "projects"])
    async def test_written_rows_cannot_be_changed_or_dropped(
        self, house: House, project: str, memory: Any, table: str
    ) -> None:
        await story(house, project)
        changed = [f"TRUNCATE {table}", f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY", f"DROP TABLE {table}"]
        if table in INSERT_ONLY and table != "records":
            changed.append(f"UPDATE {table} SET project = project")
        if table in ("records", "history", "audit", "audit_head", "lease", "projects"):
            changed.append(f"DELETE FROM {table}")
        for statement in changed:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await memory.execute(statement)

    async def test_the_inspect_role_is_read_only_and_sees_one_project(self, house: House, project: str) -> None:
        await story(house, project)
        inspect = await asyncpg.connect(house.urls.inspect)
        try:
            assert await inspect.fetchval("SELECT count(*) FROM records") == await inspect.fetchval(
                "SELECT count(*) FROM records WHERE project = 'shared'"
            )
            await inspect.execute("SELECT set_config('counterpoint.project', $1, false)", project)
            assert await inspect.fetchval("SELECT count(*) FROM records WHERE project = $1", project) == 2
            await inspect.execute("SET default_transaction_read_only = off")
            for statement in ("UPDATE records SET body = NULL", "DELETE FROM audit", "SELECT * FROM blob_parts"):
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await inspect.execute(statement)
        finally:
            await inspect.close()

"""A single column that is changed as the database's superuser is found, by `verify` and by the independent script.

Tables and columns come from the catalog: a new one is either vouched for, or among the exempt with a reason.
"""

import ast
import asyncio
import fnmatch
import json
import struct
import zlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from audit.audit_log import PROJECT, Log, a_log
from memory_service.databases import template_server
from memory_service.house import DUE
from memory_service.learning_project import learn, wish
from scripts import load_script

from counterpoint.guard.fingerprints import Fingerprints
from counterpoint.guard.policy import policy
from counterpoint.memory.access.releases import Releases
from counterpoint.memory.audit.check import VerificationScope, check
from counterpoint.memory.audit.tiles import WIDTH
from counterpoint.memory.ingest.blobs import Blobs
from counterpoint.proto.errors import Permanent
from counterpoint.proto.memory import AuditLeaves, Outgoing, Write

SCRIPT = Path(__file__).parents[2] / "examples" / "verify" / "verify_records.py"
AUDITED = ("records", "history", "messages", "inbox", "read_sets", "audit")
"""Tables whose columns, except `EXEMPT`, are compared with the leaves."""
EXEMPT = {
    "records.by_*": "generated from the body by the database",
    "history.by_*": "written by older releases, and not read",
    "messages.traceparent": "names a trace, and decides nothing",
    "read_sets.n": "the order in which read sets were stored",
    "audit.arrival": "the order in which leaves get their positions, which the tree attests",
}
"""Columns of audited tables that no leaf attests, with the reason."""
TREE: dict[str, frozenset[str]] = {
    "audit_head": frozenset({"chain"}),
    "audit_tiles": frozenset(),
    "audit_checkpoints": frozenset({"at"}),
}
"""Tables of the tree, which `verify` compares with the leaves and with signed checkpoints; and their columns without
effect: those of older releases, and the time of a checkpoint."""
_SEARCHED = "derived from the record, to search in it; results are read from the record"
_BUS = "state of the bus as far as it is known; reconciliation restores it"
UNAUDITED = {
    "vectors": _SEARCHED,
    "meanings": _SEARCHED,
    "embeddings": _SEARCHED,
    "postings": _SEARCHED,
    "lexicon": _SEARCHED,
    "corpora": _SEARCHED,
    "models": "the active embedding model",
    "pending": "the times at which messages of the log are published; their content is read from the log",
    "restored": _BUS,
    "streams": _BUS,
    "blobs": "content is addressed by its hash, which is compared when it is read",
    "blob_parts": "content is addressed by its hash, which is compared when it is read",
    "lease": "the active memory process",
    "organisation_spending": "counters of limits; counted anew from the calls if they are missing",
    "organisation_reservations": "calls under way, released when they end",
    "projects": "the last position in the order of each project; the positions of its rows are compared",
    "extracted": "progress of the knowledge graph",
    "sources": "read sets that earlier releases deleted; not read for commits that have a read set",
    "linked": "progress of `sources` in an earlier release",
    "migrations": "applied migrations",
    "installation": "the installation that the database belongs to; without effect once the services run",
}
"""Tables that no leaf attests, with the reason."""
OTHER = "billing"
BOTH = (PROJECT, OTHER)
CHANGED = {
    "text": "coalesce({0}, '') || 'x'",
    "smallint": "coalesce({0}, 0) + 1",
    "integer": "coalesce({0}, 0) + 1",
    "bigint": "coalesce({0}, 0) + 1",
    "boolean": "NOT coalesce({0}, false)",
    "timestamp with time zone": "coalesce({0}, now()) + interval '1 microsecond'",
    "uuid": "gen_random_uuid()",
    "jsonb": "'{{\"x\": 1}}'",
    "bytea": "coalesce({0}, '') || '\\x00'",
    "bigint[]": "array_append(coalesce({0}, '{{}}'), 1)",
    "uuid[]": "array_append(coalesce({0}, '{{}}'), gen_random_uuid())",
    "text[]": "array_append(coalesce({0}, '{{}}'), 'x')",
}
_COLUMNS = """
SELECT attname AS name, format_type(atttypid, NULL) AS type FROM pg_attribute
WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum
"""


VERIFIER = load_script(SCRIPT)


@pytest.fixture(scope="module")
async def log(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Log]:
    """Commits with read sets, timers set and cancelled, versions superseded, deleted and restored, and refusals."""
    folder = tmp_path_factory.mktemp("columns")
    async with template_server(folder) as server, a_log(server, folder) as log:
        house = log.house
        await log.story("t-1")
        await house.delegated(OTHER, "t-2")
        learned = await learn(house, PROJECT, "t-3")
        await learn(house, PROJECT, "t-5", joint=True)
        store, record = learned["attempt"]
        quarantined = await wish(house, PROJECT, "quarantine", store=store, id=record)
        await wish(house, PROJECT, "lift", id=quarantined)
        due = Outgoing(
            type=DUE, data={"task_id": "t-4"}, task_id="t-4", due_at=datetime(2099, 1, 1, tzinfo=UTC), timer="soon"
        )
        manager = house.delivery(await house.routed(PROJECT, "t-4"))
        await house.apply("manager", manager, step="set", last=False, messages=(due,))
        await house.apply("manager", manager, step="cancel", last=False, cancel_timers=("soon",))
        plan = Write(store="plans", id="t-4", body={"text": "rest"})
        await house.apply("manager", manager, writes=(plan,))
        await log.sign()
        yield log


@pytest.fixture(scope="module")
async def a_tile(log: Log) -> Log:
    """The same, with so many leaves that a tile of the tree is full."""
    while (await log.verify())["leaves"] < WIDTH:
        write = Write(store="tasks", id="t-1", body={})
        await asyncio.gather(
            *(log.house.refusal("router", log.house.standing(PROJECT), "store", writes=(write,)) for _ in range(64))
        )
    await log.sign()
    return log


async def by_us(log: Log, *projects: str) -> list[str]:
    """Return the faults that `verify` finds in these projects."""
    found = []
    for project in projects:
        report = await check(VerificationScope(url=log.house.database.url, project=project))
        found += report["broken"]
    return found


async def by_others(log: Log, *projects: str) -> list[str]:
    """Return the faults that the script finds in them, from the leaves exported before."""
    found: list[str] = []
    async with log.house.superuser() as connection:
        for project in projects:
            tables = {}
            for table in (*AUDITED, "sources"):
                rows = await connection.fetch(f"SELECT row_to_json(t)::text FROM {table} t WHERE project = $1", project)
                tables[table] = [json.loads(row[0]) for row in rows]
            try:
                found += VERIFIER.compare(LEAVES[project], project, tables)
            except (ValueError, LookupError, TypeError, struct.error, zlib.error) as error:
                found.append(repr(error))
    return found


LEAVES: dict[str, list[dict[str, Any]]] = {}


async def columns(log: Log, table: str) -> list[tuple[str, str]]:
    async with log.house.superuser() as connection:
        rows = await connection.fetch(_COLUMNS, table)
    return [(row["name"], row["type"]) for row in rows]


@pytest.mark.parametrize("table", AUDITED)
async def test_a_column_that_is_changed_is_found_by_both(log: Log, table: str) -> None:
    assert await log.rows("SELECT FROM records WHERE decision_id IS NOT NULL")
    assert await log.rows("SELECT FROM messages WHERE decision_ids IS NOT NULL")
    for project in (PROJECT, OTHER):
        LEAVES[project] = (await log.house.report(project, AuditLeaves()))["items"]
    assert (await by_us(log, *BOTH), await by_others(log, *BOTH)) == ([], [])
    missed = []
    for name, kind in await columns(log, table):
        if any(fnmatch.fnmatch(f"{table}.{name}", pattern) for pattern in EXEMPT):
            continue
        for some in ("IS NOT NULL", "IS NULL"):
            where = f"project = '{PROJECT}' AND {name} {some}"
            rows = await log.rows(
                f"SELECT ctid::text AS place, {name} AS was FROM {table} WHERE {where} ORDER BY ctid DESC LIMIT 1"
            )
            if not rows:
                continue
            async with log.house.superuser() as connection:
                new, looked = CHANGED[kind].format(name), (PROJECT,)
                if name == "project":
                    new, looked = f"'{OTHER}'", BOTH
                place = await connection.fetchval(
                    f"UPDATE {table} SET {name} = {new} WHERE ctid = $1::text::tid RETURNING ctid::text",
                    rows[0]["place"],
                )
                if not await by_us(log, *looked):
                    missed.append(f"verify: {table}.{name} {some}")
                if not await by_others(log, *looked):
                    missed.append(f"script: {table}.{name} {some}")
                await connection.execute(
                    f"UPDATE {table} SET {name} = $1 WHERE ctid = $2::text::tid", rows[0]["was"], place
                )
    assert missed == []
    assert (await by_us(log, *BOTH), await by_others(log, *BOTH)) == ([], [])


ADDED = {
    "records": "id = id || '-x'",
    "history": "id = id || '-x'",
    "messages": "id = gen_random_uuid(), seq = seq + 1000000",
    "inbox": "step = step || '-x'",
    "read_sets": (
        "commit_id = (SELECT id FROM audit WHERE project = added.project AND kind = 'commit'"
        " AND NOT EXISTS (SELECT FROM read_sets WHERE commit_id = audit.id) LIMIT 1)"
    ),
    "audit": "id = gen_random_uuid(), arrival = arrival + 1000000, position = position + 1000000",
}
"""Changes of a row that is added to the one that it is copied from."""
TAKEN = ("messages", "inbox")
"""Tables that retention takes rows from."""


@pytest.mark.parametrize("table", AUDITED)
async def test_a_row_that_is_added_or_gone_is_found_by_both(log: Log, table: str) -> None:
    LEAVES[PROJECT] = (await log.house.report(PROJECT, AuditLeaves()))["items"]
    names = ", ".join(name for name, _ in await columns(log, table))
    async with log.house.superuser() as connection:
        await connection.execute(
            f"CREATE TEMP TABLE added AS SELECT {names} FROM {table} WHERE project = '{PROJECT}' LIMIT 1;"
            f"CREATE TEMP TABLE gone AS SELECT * FROM added; UPDATE added SET {ADDED[table]}"
        )
        insert = f"INSERT INTO {table} ({names}) OVERRIDING SYSTEM VALUE SELECT {names} FROM"
        place = await connection.fetchval(f"{insert} added RETURNING ctid::text")
        ours, theirs = await by_us(log, PROJECT), await by_others(log, PROJECT)
        await connection.execute(f"DELETE FROM {table} WHERE ctid = $1::text::tid", place)
        assert ours
        assert theirs
        assert table != "read_sets" or "differs from what was stored" in ours[0]
        if table not in TAKEN:
            both = (f"ROW ({each}.{names.replace(', ', f', {each}.')})" for each in ("t", "gone"))
            same = " IS NOT DISTINCT FROM ".join(both)
            assert await connection.execute(f"DELETE FROM {table} t USING gone WHERE {same}") == "DELETE 1"
            ours, theirs = await by_us(log, PROJECT), await by_others(log, PROJECT)
            await connection.execute(f"{insert} gone")
            assert ours
            assert theirs
    assert (await by_us(log, PROJECT), await by_others(log, PROJECT)) == ([], [])


@pytest.mark.parametrize("table", TREE)
async def test_a_column_of_the_tree_that_is_changed_is_found(a_tile: Log, table: str) -> None:
    """A check elsewhere rebuilds the tree from the leaves, and needs none of these tables."""
    assert (await a_tile.verify())["ok"]
    missed = []
    for name, kind in await columns(a_tile, table):
        if name in TREE[table]:
            continue
        async with a_tile.house.superuser() as connection:
            was = await connection.fetchrow(f"SELECT ctid::text AS place, {name} AS said FROM {table} LIMIT 1")
            place = await connection.fetchval(
                f"UPDATE {table} SET {name} = {CHANGED[kind].format(name)} WHERE ctid = $1::text::tid"
                " RETURNING ctid::text",
                was["place"],
            )
            if not await broken(a_tile):
                missed.append(f"{table}.{name}")
            await connection.execute(f"UPDATE {table} SET {name} = $1 WHERE ctid = $2::text::tid", was["said"], place)
    assert missed == []
    assert (await a_tile.verify())["ok"]


async def broken(log: Log) -> list[str]:
    """Return the faults found by a verification over the bus, else those found by a house that has read no tree."""
    found: list[str] = (await check(VerificationScope(url=log.house.database.url, project=PROJECT)))["broken"]
    return found or (await log.verify())["broken"]


async def test_every_table_is_audited_or_has_a_reason(log: Log) -> None:
    tables = await log.rows("SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public'")
    assert sorted(row["name"] for row in tables) == sorted((*AUDITED, *TREE, *UNAUDITED))


async def test_a_blob_that_is_changed_is_not_read(log: Log) -> None:
    blobs = Blobs(log.house.database, policy(), Releases(log.house.database, Fingerprints(log.house.keys)))
    blob = await blobs.keep(PROJECT, "Orders are kept for ten days.")
    assert await blobs.content(PROJECT, blob) == b"Orders are kept for ten days."
    await log.run("UPDATE blob_parts SET content = convert_to('Orders are kept for two days.', 'UTF8')")
    with pytest.raises(Permanent, match="invalid"):
        await blobs.content(PROJECT, blob)


async def test_every_exempt_column_is_one(log: Log) -> None:
    there = [f"{table}.{name}" for table in AUDITED for name, _ in await columns(log, table)]
    generated = await log.rows(
        "SELECT attname FROM pg_attribute WHERE attrelid = 'records'::regclass AND attgenerated <> ''"
    )
    there += [f"records.{row['attname']}" for row in generated]
    assert [pattern for pattern in EXEMPT if not fnmatch.filter(there, pattern)] == []


def test_the_script_needs_the_standard_library_alone() -> None:
    tree = ast.walk(ast.parse(SCRIPT.read_text()))
    names = {alias.name for node in tree if isinstance(node, ast.Import) for alias in node.names}
    assert names == {"base64", "datetime", "hashlib", "io", "itertools", "json", "re", "struct", "sys", "uuid", "zlib"}
    assert len(SCRIPT.read_text().splitlines()) <= 310

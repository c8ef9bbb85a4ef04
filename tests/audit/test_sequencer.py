"""Leaves get their places: one after the other, whoever writes and whoever dies, and nobody changes one afterwards."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from audit.audit_log import PROJECT, Cut, Log, a_log
from memory_service.house import AUDIT_KEY, House

from counterpoint.local.postgres import PostgresUrls
from counterpoint.memory.audit.sequencer import Sequencer
from counterpoint.memory.record.functions import SEARCH_PATH
from counterpoint.proto.memory import Write

FOREIGN = Write(store="tasks", id="t-1", body={"task_id": "t-1"})
"""A write that the router may not make."""
ROWS = "SELECT * FROM audit ORDER BY position"
WAITING = """
INSERT INTO audit (project, id, kind, task_id, body, salt)
SELECT 'orders', gen_random_uuid(), 'refusal', 't-' || n % 7,
       jsonb_build_object('refused', 'x', 'rule', 'r', 'task', 't-' || n % 7)::text, decode(md5(n::text), 'hex')
FROM generate_series(1, {count}) AS n
"""
OF_THE_RELEASE_BEFORE = """
DO $$
DECLARE head audit_head; salt bytea := '\\x01'; said text := '{"refused": "x", "rule": "r", "task": "t-1"}';
BEGIN
    SELECT * INTO head FROM audit_head WHERE shard = '0' FOR UPDATE;
    head.position := head.position + 1;
    head.chain := sha256(head.chain || sha256(salt || convert_to(said, 'UTF8')));
    INSERT INTO audit (position, project, id, kind, task_id, body, salt, leaf, chain)
    VALUES (head.position, 'orders', gen_random_uuid(), 'refusal', 't-1', said, salt,
            sha256(salt || convert_to(said, 'UTF8')), head.chain);
    UPDATE audit_head SET position = head.position, chain = head.chain WHERE shard = '0';
END $$
"""


@pytest.fixture
async def log(server: PostgresUrls, tmp_path: Path) -> AsyncIterator[Log]:
    async with a_log(server, tmp_path) as log:
        yield log


def another(log: Log) -> Sequencer:
    return Sequencer(log.house.database, AUDIT_KEY, (log.file,))


async def whole(log: Log) -> dict[str, Any]:
    """The report, of a log without a gap and with its chains."""
    report = await log.verify()
    assert report["broken"] == []
    rows = await log.rows(ROWS)
    assert [row["position"] for row in rows] == list(range(1, len(rows) + 1))
    assert report["window"]["waiting"] == 0
    return report


async def test_leaves_of_a_task_are_chained_and_know_how_far_the_project_was(log: Log) -> None:
    await log.story("t-1")
    await log.sign()
    of_task = [row for row in await log.rows(ROWS) if row["task_id"] == "t-1"]
    assert len(of_task) > 3
    assert of_task[0]["previous"] is None
    for before, after in pairwise(of_task):
        assert after["previous"] == before["leaf"]
    seqs = [row["seq"] for row in await log.rows(ROWS) if row["project"] == PROJECT]
    assert seqs == sorted(seqs)
    newest = "SELECT max(seq) AS seq FROM records WHERE project = 'orders'"
    assert seqs[-1] >= (await log.rows(newest))[0]["seq"]


async def test_a_commit_gives_its_leaf_the_next_position(log: Log) -> None:
    await log.story("t-1")
    rows = await log.rows("SELECT * FROM audit ORDER BY arrival")
    assert [row["position"] for row in rows] == list(range(1, len(rows) + 1))
    assert all(row["leaf"] for row in rows)


async def test_a_sequencer_killed_anywhere_is_taken_over_from(log: Log) -> None:
    await log.story("t-1")
    after = 0
    while True:
        await log.run(WAITING.format(count=300))
        killed = another(log)
        was_cut = await Cut(killed.once(sign=True), after)
        await another(log).once(sign=True)
        assert another(log).fault is None
        if not was_cut:
            break
        after += 1
    assert after > 10
    report = await whole(log)
    log.house.restart()
    await log.sign()
    assert log.house.sequencer.fault is None
    assert (await log.signed())[-1].size == report["head"]["position"]


async def test_a_sequencer_that_was_killed_goes_on_by_itself(log: Log) -> None:
    await log.story("t-1")
    for after in range(12):
        await log.run(WAITING.format(count=300))
        await Cut(log.house.sequencer.once(sign=True), after)
    await log.sign()
    assert log.house.sequencer.fault is None
    await whole(log)


async def test_two_sequencers_and_many_writers_make_one_log(log: Log) -> None:
    one, two = another(log), another(log)

    async def sequence(sequencer: Sequencer) -> None:
        for _ in range(15):
            await sequencer.once(sign=True)

    async def write(of: int) -> None:
        for n in range(15):
            await log.run(WAITING.format(count=7), *([OF_THE_RELEASE_BEFORE] if n % 3 == of else []))

    await asyncio.gather(sequence(one), sequence(two), *(write(n) for n in range(4)), log.story("t-9"))
    await log.sign()
    assert one.fault is None
    assert two.fault is None
    await whole(log)


async def test_leaves_of_the_previous_release_are_part_of_the_log(log: Log) -> None:
    await log.story("t-1")
    for _ in range(3):
        await log.run(OF_THE_RELEASE_BEFORE)
        await log.house.refusal("router", log.house.standing(PROJECT, "t-1"), "store", writes=(FOREIGN,))
    await log.sign()
    await whole(log)
    await log.run("UPDATE audit SET body = replace(body, '\"r\"', '\"s\"') WHERE chain IS NOT NULL")
    assert not (await log.verify())["ok"]


@pytest.mark.slow
async def test_a_tree_of_many_tiles_is_read_again_as_it_was(log: Log) -> None:
    await log.story("t-1")
    await log.run(WAITING.format(count=70_000))
    await log.sign()
    first = (await whole(log))["head"]["root"]
    log.house.restart()
    await log.house.sequencer.once()
    assert log.house.sequencer.fault is None
    assert (await log.verify())["head"]["root"] == first
    assert (await log.rows("SELECT max(level) AS level FROM audit_tiles"))[0]["level"] == 1


class TestRights:
    """Memory's login adds leaves and tiles and changes none; what gives places changes nothing but their absence."""

    @pytest.fixture
    async def memory(self, house: House) -> "AsyncIterator[asyncpg.Connection[asyncpg.Record]]":
        connection = await asyncpg.connect(house.urls.memory, server_settings={"search_path": SEARCH_PATH})
        yield connection
        await connection.close()

    @pytest.mark.parametrize("table", ["audit", "audit_tiles", "audit_checkpoints"])
    async def test_memory_only_adds(self, memory: Any, table: str) -> None:
        column = {"audit": "position", "audit_tiles": "hashes", "audit_checkpoints": "note"}[table]
        for statement in (
            f"UPDATE {table} SET {column} = {column}",
            f"DELETE FROM {table}",
            f"TRUNCATE {table}",
            f"SELECT * FROM {table} FOR UPDATE",
            f"ALTER TABLE {table} DISABLE TRIGGER ALL",
            "DROP POLICY sequencing ON audit",
            "SET ROLE counterpoint_owner",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await memory.execute(statement)

    async def test_a_place_that_was_given_stays(self, house: House, project: str, memory: Any) -> None:
        await house.delegated(project, "t-1")
        await house.sequencer.once()
        everything = "SELECT arrival, position, previous, leaf, body, packed FROM audit ORDER BY arrival"
        async with house.superuser() as connection:
            before = await connection.fetch(everything)
            for _ in range(3):
                await memory.fetchval("SELECT sequence_leaves(100)")
            assert await connection.fetch(everything) == before

    async def test_hashes_are_all_that_is_seen_of_other_projects(self, house: House, project: str, memory: Any) -> None:
        await house.delegated(project, "t-1")
        await house.sequencer.once()
        assert await memory.fetch("SELECT * FROM audit") == []
        rows = await memory.fetch("SELECT * FROM leaf_hashes(0, 1000)")
        assert rows
        assert all(len(row) == 2 and len(row["leaf_hash"]) == 32 for row in rows)

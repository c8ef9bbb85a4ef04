"""Obstacles to a commit are everyday work: each is answered, and the server's log has no error for it."""

import asyncio
from pathlib import Path

from commit.commit_records import rows, submission
from memory_service.house import House

from counterpoint.proto.memory import Write


async def log_of(house: House) -> Path:
    async with house.superuser() as connection:
        return Path(await connection.fetchval("SHOW data_directory")).parent / "postgres.log"


async def test_no_obstacle_is_an_error_in_the_log_of_the_server(house: House, project: str) -> None:
    log = await log_of(house)
    before = len(log.read_text())
    origin = house.standing(project)
    await house.apply("router", origin, last=False, step="one", writes=(submission("a"),))
    house.restart()
    known = await house.commit("router", origin, last=False, step="one", writes=(submission("a"),))
    assert known.status == "replayed"
    await house.apply("router", origin, step="two", writes=(submission("b"),))
    house.restart()
    assert (await house.commit("router", origin, step="three", writes=(submission("c"),))).status == "stale"
    for write in (submission("a"), submission("a", 7), submission("nowhere", 1)):
        conflict = await house.commit("router", house.standing(project), writes=(submission("new"), write))
        assert conflict.refusal is not None
        assert conflict.refusal.kind == "conflict"
    await house.apply(
        "router", house.standing(project), writes=(Write(store="submissions", id="a", body=None, expect=1),)
    )
    assert (await house.commit("router", house.standing(project), writes=(submission("a", 1),))).status == "refused"
    assert {row["id"] for row in await rows(house, "records", project)} == {"a", "b"}
    assert "ERROR" not in log.read_text()[before:]


async def test_a_refused_commit_leaves_the_others_of_its_transaction_applied(house: House, project: str) -> None:
    """A group that meets an obstacle has no effect as a whole and is applied in halves."""
    await house.apply("router", house.standing(project), writes=(submission("taken"),))
    replies = await asyncio.gather(
        *(
            house.commit("router", house.standing(project), writes=(submission(name), submission(f"{name}-too")))
            for name in ("one", "taken", "two", "three")
        )
    )
    assert [reply.status for reply in replies] == ["done", "refused", "done", "done"]
    kept = {row["id"] for row in await rows(house, "records", project)}
    assert kept == {"taken", "one", "one-too", "two", "two-too", "three", "three-too"}

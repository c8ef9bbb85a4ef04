"""Retention of a project's log, on a real PostgreSQL: readers that missed a part are told, and no others."""

import base64
import hashlib
from datetime import timedelta

from memory_service.house import PERSON, House, decision

from counterpoint.memory.maintenance.retention import delete_expired
from counterpoint.proto.ingest import PutPart
from counterpoint.proto.memory import LogAfter
from counterpoint.proto.messages import PART_BYTES


async def expire(house: House, project: str, upto: int) -> None:
    """The project's messages up to this place grow old, and are forgotten."""
    async with house.superuser() as connection:
        await connection.execute(
            "UPDATE messages SET at = now() - interval '8 days' WHERE project = $1 AND seq <= $2", project, upto
        )
    await delete_expired(house.database, timedelta(days=7))


async def log_page(house: House, project: str, after: int, limit: int = 200) -> tuple[bool, list[int], int | None]:
    """Whether there is a gap behind this place, what comes after it, and where to go on."""
    query = LogAfter(after=after, kinds=("tasks",), limit=limit)
    found = await house.answer("router", house.standing(project), query)
    return found.gap, [item.seq for item in found.items], found.next_cursor


async def routed(house: House, project: str, *tasks: str) -> list[int]:
    """The places in the log of tasks that are routed now."""
    return [house.sent[await house.routed(project, task)].seq for task in tasks]


async def test_a_reader_before_the_retained_log_has_a_gap_and_later_ones_have_none(house: House, project: str) -> None:
    # A record beside a message takes a place in the project too.
    await house.delegated(project, "t-0")
    first, second, third = await routed(house, project, "t-1", "t-2", "t-3")
    assert (await log_page(house, project, 0))[0] is False
    await expire(house, project, second)
    for after, gap in ((0, True), (first, True), (second, False), (third, False)):
        assert (await log_page(house, project, after))[0] is gap, after
    await expire(house, project, third)
    assert await log_page(house, project, second) == (True, [], third)
    assert await log_page(house, project, third) == (False, [], third)
    (fourth,) = await routed(house, project, "t-4")
    assert await log_page(house, project, second) == (True, [fourth], fourth)


async def test_the_start_of_a_log_never_moves_back_and_is_per_project(house: House, project: str) -> None:
    other = f"{project}-b"
    first, second = await routed(house, project, "t-1", "t-2")
    await routed(house, other, "t-1", "t-2")
    await expire(house, project, second)
    await expire(house, project, first)
    assert (await log_page(house, project, first))[0] is True
    assert (await log_page(house, other, 0))[0] is False


async def test_a_reader_at_the_end_of_the_log_has_no_gap_after_retention(house: House, project: str) -> None:
    first, second = await routed(house, project, "t-1", "t-2")
    assert await log_page(house, project, 0, limit=1) == (False, [first], first)
    await house.apply("router", house.standing(project), messages=(decision("router", project=project),))
    gap, seen, end = await log_page(house, project, first)
    assert (gap, seen) == (False, [second])
    assert end is not None
    assert end > second
    await expire(house, project, end)
    assert await log_page(house, project, end) == (False, [], end)


async def test_incomplete_uploads_are_deleted_by_retention(house: House, project: str) -> None:
    async def parts() -> int:
        async with house.superuser() as connection:
            return int(await connection.fetchval("SELECT count(*) FROM blob_parts WHERE project = $1", project))

    await house.routed(project, "t-1")
    for content in (b"x" * PART_BYTES + b"y", b"whole"):
        part = PutPart(
            origin=house.standing(project, principal=PERSON),
            sha256=hashlib.sha256(content).hexdigest(),
            bytes=len(content),
            part=0,
            content=base64.b64encode(content[:PART_BYTES]),
        )
        assert b'"received":[0]' in await house.door.put("router", part.model_dump_json().encode())
    await expire(house, project, 0)
    assert await parts() == 2
    async with house.superuser() as connection:
        await connection.execute("UPDATE blobs SET at = now() - interval '8 days' WHERE project = $1", project)
    await expire(house, project, 0)
    assert await parts() == 1

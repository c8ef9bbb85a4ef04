"""Answers that would be larger than the bus carries: shorter, said so, and read as far as they were shown."""

import json
from datetime import UTC, datetime
from typing import Any

from memory_service.house import House, task_body

from counterpoint.client import Memory
from counterpoint.proto.memory import Get, List, Origin, Write

LARGE = 100_000
TASKS = 12


async def large_tasks(house: House, project: str, count: int, size: int = LARGE) -> Origin:
    """Write `count` waiting tasks with `size` bytes in each; return the origin of a reader."""
    for number in range(count):
        body = task_body(f"t{number}", "input_required", context={"log": "x" * size})
        writes = (Write(store="tasks", id=f"t{number}", body=body),)
        await house.apply("manager", house.delivery(await house.routed(project, f"t{number}")), writes=writes)
    return house.delivery(await house.routed(project, "reader"))


def list_waiting(**more: Any) -> List:
    return List(store="tasks", where={"state": "input_required"}, limit=100, **more)


async def test_a_page_that_does_not_fit_is_cut_and_its_cursor_leads_to_the_rest(house: House, project: str) -> None:
    reader = await large_tasks(house, project, TASKS)
    shown, pages, cursor = list[str](), 0, None
    while pages == 0 or cursor is not None:
        page = await house.answer("manager", reader, list_waiting(cursor=cursor))
        assert page.partial is (page.next_cursor is not None)
        shown += [item.id for item in page.items]
        pages, cursor = pages + 1, page.next_cursor
    assert shown == [f"t{number}" for number in reversed(range(TASKS))]
    assert pages == 2
    write = Write(store="tasks", id="reader", body=task_body("reader"))
    await house.apply("manager", reader, reads=pages, writes=(write,))


async def test_only_items_in_the_reply_are_in_the_read_set(house: House, project: str) -> None:
    reader = await large_tasks(house, project, TASKS)
    page = await house.answer("manager", reader, list_waiting())
    write = Write(store="tasks", id="reader", body=task_body("reader"))
    await house.apply("manager", reader, reads=1, writes=(write,))
    async with house.superuser() as connection:
        kept = await connection.fetchval(
            "SELECT reads FROM read_sets WHERE project = $1 ORDER BY at DESC LIMIT 1", project
        )
    read = {record_id for store, record_id, *_ in json.loads(kept) if store == "tasks"}
    assert read == {item.id for item in page.items}
    assert len(read) < TASKS


async def test_the_longest_answers_of_a_reply_are_cut(house: House, project: str) -> None:
    reader = await large_tasks(house, project, TASKS)
    asked = (Get(store="tasks", id="t0"), list_waiting(), list_waiting(ascending=True))
    one, whole, few = (await house.query("manager", reader, *asked)).found
    assert (len(one.items), one.partial) == (1, False)
    assert whole.partial
    assert few.partial
    assert len(whole.items) + len(few.items) in (7, 8)


async def test_single_records_that_do_not_fit_together_are_refused_by_name(house: House, project: str) -> None:
    reader = await large_tasks(house, project, 4, size=350_000)
    asked = (Get(store="tasks", id=f"t{number}") for number in range(4))
    refusal = await house.refusal("manager", reader, "too_large", *asked)
    assert refusal.kind == "permanent"


async def test_records_that_do_not_fit_together_are_read_in_several_replies(house: House, project: str) -> None:
    reader = await large_tasks(house, project, TASKS)
    ids = [f"t{number}" for number in range(TASKS)]
    reply = await house.query("manager", reader, *(Get(store="tasks", id=each) for each in ids))
    assert reply.refusal is not None
    assert reply.refusal.code == "too_large"

    async def transport(subject: str, body: bytes, timeout_s: float) -> bytes:
        return await house.door.query("manager", body)

    memory = Memory(transport, "manager", reader, datetime.now(UTC))
    assert [item.id for item in await memory.get_all("tasks", [*ids, "none"])] == ids

"""A wish is done as a whole: what several wishes are about, what is shared, what an end of the process has left."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from memory_service.house import PERSON, House
from memory_service.learning_project import GOOD, POISON, ingest, learn, reading, there, wish, worked_on

from counterpoint.memory.operations.take_back import TakeBacks
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Get, Write


async def killed(*_: Any) -> None:
    """The process ends here."""
    raise RuntimeError("killed")


async def again(house: House) -> None:
    """Another process goes on."""
    house.restart()
    await house.remember()
    await house.finish()


@pytest.fixture
async def shared_document(house: House, project: str) -> AsyncIterator[str]:
    """A poisoned document of the shared project, which no other test sees."""
    document = await ingest(house, "shared", f"{POISON} {project}", source=f"{project}.md")
    yield document
    await wish(house, "shared", "quarantine", store="documents", id=document)


async def test_records_under_another_quarantine_stay_out(house: House, project: str) -> None:
    one = await ingest(house, project, POISON, source="one.md")
    two = await ingest(house, project, f"{POISON} At once.", source="two.md")
    learned = await learn(house, project, new_id())
    first = await wish(house, project, "quarantine", store="documents", id=one)
    second = await wish(house, project, "quarantine", store="documents", id=two)
    await wish(house, project, "lift", id=first)
    assert await there(house, project, ("documents", one), ("documents", two)) == [True, False]
    assert not any(await there(house, project, *learned.values()))
    await again(house)
    assert not any(await there(house, project, *learned.values()))
    await wish(house, project, "lift", id=second)
    assert all(await there(house, project, *learned.values(), ("documents", two)))
    await again(house)
    assert all(await there(house, project, *learned.values(), ("documents", two)))
    assert (await house.verify(project))["ok"]


async def test_records_that_were_also_rolled_back_stay_out(house: House, project: str) -> None:
    document = await ingest(house, project, GOOD)
    good = await learn(house, project, new_id())
    await ingest(house, project, POISON)
    bad = await learn(house, project, new_id())
    first = await wish(house, project, "quarantine", store="documents", id=document)
    await wish(house, project, "rollback", store="documents", id=document)
    await wish(house, project, "lift", id=first)
    await again(house)
    assert all(await there(house, project, *good.values(), ("documents", document)))
    assert not any(await there(house, project, *bad.values()))


async def test_commits_under_way_are_put_back_too(house: House, project: str) -> None:
    document = await ingest(house, project, POISON)
    task = new_id()
    origin = house.delivery(await house.delegated(project, task))
    worked = worked_on(task, await reading(house, origin))
    done = await house.apply("developer", origin, reads=1, messages=(worked,))
    first = await wish(house, project, "quarantine", store="documents", id=document)
    plan = Write(store="plans", id=task, body={"plan_id": task, "task_id": task, "text": "drop it"})
    await house.apply("manager", house.delivery(done.message_ids[0]), writes=(plan,))
    assert await there(house, project, ("plans", task)) == [False]
    await wish(house, project, "lift", id=first)
    assert await there(house, project, ("plans", task)) == [True]


async def test_lifting_a_shared_item_restores_records_in_all_projects(
    house: House, project: str, shared_document: str
) -> None:
    learned = await learn(house, project, new_id())
    first = await wish(house, "shared", "quarantine", store="documents", id=shared_document)
    assert not any(await there(house, project, *learned.values()))
    await wish(house, "shared", "lift", id=first)
    assert all(await there(house, project, *learned.values()))


@pytest.mark.parametrize("where", ["_in_other_projects", "_lift_in_other_projects"])
async def test_an_interrupted_take_back_of_a_shared_item_is_continued(
    house: House, project: str, shared_document: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned = await learn(house, project, new_id())
    lifts = where == "_lift_in_other_projects"
    first = await wish(house, "shared", "quarantine", store="documents", id=shared_document) if lifts else new_id()
    body = (
        {"kind": "lift", "id": first} if lifts else {"kind": "quarantine", "store": "documents", "id": shared_document}
    )
    write = Write(store="quarantines", id=new_id(), body={**body, "reason": "it is wrong"})
    with monkeypatch.context() as patch:
        patch.setattr(TakeBacks, where, killed)
        reply = await house.commit("router", house.standing("shared", principal=PERSON), writes=(write,))
        assert reply.status == "refused"
    assert await there(house, project, *learned.values()) == [not lifts] * len(learned)
    if not lifts:
        # What was learned of a version that came after the wish is none of its business.
        await ingest(house, "shared", f"{GOOD} {project}", source=f"{project}.md")
        reader = house.delivery(await house.delegated(project, new_id()))
        await house.answer("developer", reader, Get(store="documents", id=shared_document))
        attempt = Write(store="attempts", id="later", body={"attempt_id": "later", "tried": "it", "error_message": ""})
        await house.apply("developer", reader, reads=1, writes=(attempt,))
    await again(house)
    assert await there(house, project, *learned.values()) == [lifts] * len(learned)
    if not lifts:
        assert await there(house, project, ("attempts", "later")) == [True]


async def test_a_restart_removes_the_leftovers_of_a_killed_process(
    house: House, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message carried it into a commit, and the process ended before that was taken out."""
    document = await ingest(house, project, POISON)
    task = new_id()
    origin = house.delivery(await house.delegated(project, task))
    worked = worked_on(task, await reading(house, origin))
    done = await house.apply("developer", origin, reads=1, messages=(worked,))
    await wish(house, project, "quarantine", store="documents", id=document)
    plan = Write(store="plans", id=task, body={"plan_id": task, "task_id": task, "text": "drop it"})
    with monkeypatch.context() as patch:
        patch.setattr(TakeBacks, "follow", killed)
        await house.commit("manager", house.delivery(done.message_ids[0]), writes=(plan,))
    assert await there(house, project, ("plans", task)) == [True]
    await again(house)
    assert await there(house, project, ("plans", task)) == [False]
    assert (await house.verify(project))["ok"]

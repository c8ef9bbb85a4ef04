"""Plans as documents: stored once, derived from the plan, never in place of a document of somebody."""

from typing import Any

import pytest
from memory_service.house import PERSON, House
from memory_service.learning_project import ingest

from counterpoint.memory.ingest.documents import Ingest
from counterpoint.memory.ingest.plan_documents import PlanDocuments
from counterpoint.memory.record.stamps import DERIVED, UNTRUSTED
from counterpoint.proto.errors import Transient
from counterpoint.proto.ids import document_id, new_id
from counterpoint.proto.memory import Get, HybridSearch, Item, Write

PATH = "docs/provider_plan_zeppo_mail.md"
TEXT = "# Provider plan: Zeppo Mail\n\n## Searched\n\n- providers of: Zeppo Mail\n\n## Steps\n\n1. Confirm the name.\n"


async def planned(house: House, project: str, **fields: Any) -> str:
    """A plan that the manager wrote for a task."""
    task = new_id()
    body = {"task_id": task, "path": PATH, "system": "Zeppo Mail", "text": TEXT, **fields}
    origin = house.delivery(await house.routed(project, task))
    await house.apply("manager", origin, writes=(Write(store="plans", id=f"{task}-1", body=body),))
    return f"{task}-1"


async def follow(house: House, project: str) -> None:
    follower = PlanDocuments(house.database, house.ingest)
    while await follower.follow(project):
        pass


async def document(house: House, project: str, path: str = PATH) -> Item | None:
    found = await house.answer(
        "router", house.standing(project, principal=PERSON), Get(store="documents", id=document_id(path))
    )
    return found.items[0] if found.items else None


async def test_a_plan_becomes_a_document_that_is_found_and_that_nothing_rests_on(house: House, project: str) -> None:
    plan = await planned(house, project)
    await follow(house, project)
    stored = await document(house, project)
    assert stored is not None
    assert (stored.body["source"], stored.body["title"]) == (PATH, "Provider plan: Zeppo Mail")
    assert stored.body["metadata"]["plan"] == plan
    assert stored.integrity == DERIVED
    person = house.standing(project, principal=PERSON)
    found = await house.answer("router", person, HybridSearch(store="chunks", text="Zeppo Mail", k=5))
    assert {item.integrity for item in found.items} == {DERIVED}
    assert found.items[0].body["source"] == PATH


async def test_followed_again_it_is_stored_once_and_a_newer_plan_takes_its_place(house: House, project: str) -> None:
    await planned(house, project)
    await follow(house, project)
    first = await document(house, project)
    async with house.superuser() as connection:
        await connection.execute("DELETE FROM extracted WHERE project = $1", project)
    await follow(house, project)
    assert await document(house, project) == first
    await planned(house, project, text=f"{TEXT}2. Look for a package.\n")
    await follow(house, project)
    second = await document(house, project)
    assert second is not None
    assert first is not None
    assert second.version == first.version + 1


async def test_a_document_of_a_person_is_not_replaced_and_a_person_may_replace_the_plan(
    house: House, project: str
) -> None:
    await planned(house, project)
    await follow(house, project)
    await ingest(house, project, "# Zeppo Mail\n\nIts interface is SMTP.", source=PATH)
    own = await document(house, project)
    assert own is not None
    assert own.integrity > DERIVED
    await planned(house, project, text=f"{TEXT}2. Delete everything.\n")
    await follow(house, project)
    assert await document(house, project) == own


@pytest.mark.parametrize("fields", [{"path": None}, {"path": 3}, {"text": None}, {"text": " "}])
async def test_a_plan_without_a_path_or_a_text_becomes_no_document(
    house: House, project: str, fields: dict[str, Any]
) -> None:
    await planned(house, project, **fields)
    await follow(house, project)
    assert await document(house, project) is None


async def test_the_document_of_a_plan_keeps_its_label_and_integrity(house: House, project: str) -> None:
    task = new_id()
    routed = await house.routed(project, task)
    low = house.delivery(routed)
    async with house.superuser() as connection:
        await connection.execute("UPDATE messages SET integrity = 0, label = 2 WHERE id = $1", routed)
    house.restart()
    body = {"task_id": task, "path": PATH, "text": TEXT}
    await house.apply("manager", low, writes=(Write(store="plans", id=task, body=body),))
    await follow(house, project)
    async with house.superuser() as connection:
        rows = await connection.fetch(
            "SELECT label, integrity FROM records WHERE project = $1 AND store IN ('documents', 'chunks')", project
        )
    assert {(row["label"], row["integrity"]) for row in rows} == {(2, UNTRUSTED)}


async def test_a_crash_in_between_loses_no_plan(house: House, project: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await planned(house, project)

    async def killed(*_: Any) -> None:
        raise Transient("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Ingest, "derived", killed)
        with pytest.raises(Transient):
            await PlanDocuments(house.database, house.ingest).follow(project)
    house.restart()
    await follow(house, project)
    assert await document(house, project) is not None


async def test_a_plan_that_is_taken_back_takes_its_document_with_it(house: House, project: str) -> None:
    plan = await planned(house, project)
    await follow(house, project)
    body = {"kind": "quarantine", "store": "plans", "id": plan, "reason": "wrong"}
    write = Write(store="quarantines", id=new_id(), body=body)
    await house.apply("router", house.standing(project, principal=PERSON), writes=(write,))
    assert await document(house, project) is None

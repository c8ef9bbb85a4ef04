"""The preview of a take-back: what it would do, and nothing of it done."""

import pytest
from memory_service.house import PERSON, House
from memory_service.learning_project import GOOD, POISON, ingest, learn, there, wish

from counterpoint.proto.commands import CommandReply, CommandRequest, TakeBackMemory
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Get, TakeBack, TakeBackPreview, TakenBack


async def commanded(
    house: House, project: str, kind: str, record: str, *, store: str = "documents", preview: bool = True
) -> tuple[str, CommandReply]:
    take_back = TakeBack.model_validate({"kind": kind, "store": store, "id": record, "reason": "a test"})
    command = TakeBackMemory(id=new_id(), wish=take_back, preview=preview)
    request = CommandRequest(origin=house.standing(project, principal=PERSON), command=command)
    raw = await house.door.command("router", request.model_dump_json().encode())
    return command.id, CommandReply.model_validate_json(raw)


async def previewed(house: House, project: str, kind: str, record: str) -> TakeBackPreview:
    _, reply = await commanded(house, project, kind, record)
    assert reply.refusal is None, reply.refusal
    assert reply.commit is None
    return TakeBackPreview.model_validate(reply.report)


@pytest.mark.parametrize("kind", ["quarantine", "rollback"])
async def test_a_preview_counts_the_effects_of_the_take_back(house: House, project: str, kind: str) -> None:
    document, task = await ingest(house, project, GOOD), new_id()
    await ingest(house, project, POISON)
    learned = await learn(house, project, task)
    preview = await previewed(house, project, kind, document)
    assert all(await there(house, project, ("documents", document), *learned.values()))
    assert (preview.version, preview.tasks, preview.tasks_count) == (2 if kind == "rollback" else 1, (task,), 1)
    first = preview.records[0]
    assert (first.store, first.id, first.version) == ("documents", document, 2)
    assert first.restored == (1 if kind == "rollback" else None)
    assert {(each.store, each.id) for each in preview.records} > set(learned.values())

    take_back_id, reply = await commanded(house, project, kind, document, preview=False)
    assert reply.refusal is None, reply.refusal
    found = await house.answer(
        "router", house.standing(project, principal=PERSON), Get(store="quarantines", id=take_back_id)
    )
    done = TakenBack.model_validate(found.items[0].body)
    assert (preview.out, preview.restored, preview.tasks) == (done.out, done.restored, done.tasks)
    assert done.restored == ({"documents": 1, "chunks": 1} if kind == "rollback" else {})


async def test_a_preview_of_a_shared_item_counts_other_projects(house: House, project: str) -> None:
    document = await ingest(house, "shared", f"{POISON} {project}", source=f"{project}.md")
    for each in (project, f"{project}-b"):
        await learn(house, each, new_id())
    preview = await previewed(house, "shared", "quarantine", document)
    assert preview.other_projects >= 2
    assert preview.out["documents"] == 1
    await wish(house, "shared", "quarantine", store="documents", id=document)


async def test_a_preview_names_at_most_one_page_of_records(
    house: House, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("counterpoint.memory.operations.preview.NAMED", 2)
    document = await ingest(house, project, POISON)
    await learn(house, project, new_id())
    preview = await previewed(house, project, "quarantine", document)
    assert (len(preview.records), preview.truncated) == (2, True)
    assert sum(preview.out.values()) > 2


async def test_a_lift_and_an_item_of_another_project_have_no_preview(house: House, project: str) -> None:
    document = await ingest(house, project, POISON)
    _, reply = await commanded(house, project, "lift", new_id(), store="quarantines")
    assert reply.refusal is not None
    assert (reply.refusal.code, reply.refusal.problems[0].field) == ("invalid", "preview")
    _, reply = await commanded(house, f"{project}-b", "quarantine", document)
    assert reply.refusal is not None
    assert reply.refusal.code == "not_found"

"""Lessons that are handed in, at memory's door: whose word they are, what they replace, and what is refused."""

import re
from typing import Any

import pytest
from ingest.test_bulk_import import SECRET, somebody, stored_records
from memory_service.house import House

from counterpoint.proto.ids import new_id
from counterpoint.proto.ingest import IngestReply, IngestRequest, RecordResult
from counterpoint.proto.lessons import PastLesson
from counterpoint.proto.memory import Origin, Write


def lesson(**attempt: Any) -> PastLesson:
    """A lesson with one attempt that others made."""
    stated = {
        "id": "a-1",
        "attempt": 1,
        "tried": "Rotated the logs.",
        "outcome": "succeeded",
        "by": "alice",
        "by_kind": "person",
        "override_by": "eve",
        "at": "2026-03-04T10:00:00Z",
    }
    failure = {"description": "The disk is full", "error_message": "No space left on device", "submitted_by": "carol"}
    return PastLesson.model_validate({"id": "t-1", "failure": failure, "attempts": [stated | attempt]})


async def answer(house: House, origin: Origin, *lessons: PastLesson, caller: str = "router") -> IngestReply:
    """The door's reply."""
    request = IngestRequest(origin=origin, lessons=lessons)
    return IngestReply.model_validate_json(await house.door.ingest(caller, request.model_dump_json().encode()))


async def recorded(
    house: House, project: str, *lessons: PastLesson, principal: str = "administrator"
) -> tuple[RecordResult, ...]:
    """The result of lessons that a principal hands in."""
    reply = await answer(house, house.standing(project, principal=principal), *lessons)
    assert reply.refusal is None, reply.refusal
    return reply.lessons


async def test_an_attempt_is_by_the_importer_whoever_its_page_names(house: House, project: str) -> None:
    (became,) = await recorded(house, project, lesson())
    assert became.status == "added"
    row = (await stored_records(house, project))[became.id]
    body = row["body"]
    assert (body["by"], body["by_kind"], row["integrity"]) == ("administrator", "person", 2)
    assert "override_by" not in body
    assert (body["origin"]["by"], body["origin"]["override_by"], body["origin"]["submitted_by"]) == (
        "alice",
        "eve",
        "carol",
    )
    assert re.fullmatch(r"past-[0-9a-f]{32}", body["task_id"])


@pytest.mark.parametrize(
    ("kind", "stated", "integrity", "by_kind"),
    [
        ("person", {"integrity": 0, "by_kind": "person"}, 0, "person"),
        ("person", {"integrity": 1, "by_kind": "agent"}, 1, "agent"),
        ("person", {"integrity": 0, "by": None}, 2, "person"),
        ("agent", {"integrity": 2, "by_kind": "person"}, 1, "agent"),
        ("agent", {"integrity": 2, "by": None}, 1, "agent"),
    ],
)
async def test_an_imported_attempt_has_at_most_the_integrity_of_importer_and_page(
    house: House, project: str, kind: str, stated: dict[str, Any], integrity: int, by_kind: str
) -> None:
    name = await somebody(house, project, kind, "ingest")
    (became,) = await recorded(house, project, lesson(**stated), principal=name)
    row = (await stored_records(house, project))[became.id]
    assert (row["integrity"], row["body"]["by"], row["body"]["by_kind"]) == (integrity, name, by_kind)


async def test_a_second_import_is_unchanged_and_other_content_is_refused(house: House, project: str) -> None:
    other = await somebody(house, project, "person", "ingest")
    (first,) = await recorded(house, project, lesson())
    (again,) = await recorded(house, project, lesson(), principal=other)
    (changed,) = await recorded(house, project, lesson(outcome="failed"), principal=other)
    assert [each.status for each in (first, again, changed)] == ["added", "unchanged", "refused"]
    assert "never replaces" in (changed.problem or "")
    ((version, body),) = [(row["version"], row["body"]) for row in (await stored_records(house, project)).values()]
    assert (version, body["by"], body["outcome"]) == (1, "administrator", "succeeded")


async def test_an_attempt_of_the_project_itself_is_not_recorded_again_nor_overwritten(
    house: House, project: str
) -> None:
    sent = await house.delegated(project, "t-1")
    native = {
        "attempt_id": "a-1", "task_id": "t-1", "project": project, "attempt": 1, "description": "x",
        "tried": "native", "by": "developer", "at": "2026-03-04T10:00:00Z",
    }  # fmt: skip
    await house.apply("developer", house.delivery(sent), writes=(Write(store="attempts", id="a-1", body=native),))
    (same,) = await recorded(house, project, lesson())
    assert same.status == "unchanged"
    (elsewhere,) = await recorded(house, project, lesson().model_copy(update={"id": "t-2"}))
    assert elsewhere.status == "added"
    rows = await stored_records(house, project)
    assert rows["a-1"]["body"]["tried"] == "native"
    assert len(rows) == 2


@pytest.mark.parametrize("field", ["tried", "cause", "verification", "summary", "by"])
async def test_a_lesson_with_a_secret_is_refused_by_its_field_and_others_are_kept(
    house: House, project: str, field: str
) -> None:
    wrong = lesson(**{field: f"Set it to {SECRET}"}).model_copy(update={"id": "t-2"})
    good, refused = await recorded(house, project, lesson(), wrong)
    assert (good.status, refused.status) == ("added", "refused")
    assert ("origin" if field == "by" else field) in (refused.problem or "")
    assert SECRET not in str(await stored_records(house, project))


async def test_without_the_role_or_with_a_tasks_token_it_is_refused(house: House, project: str) -> None:
    name = await somebody(house, project, "person", "read")
    sent = await house.delegated(project, new_id())
    for caller, origin in (
        ("router", house.standing(project, principal=name)),
        ("developer", house.delivery(sent).model_copy(update={"principal": "administrator"})),
    ):
        reply = await answer(house, origin, lesson(), caller=caller)
        assert reply.refusal is not None
        assert reply.lessons == ()
    assert await stored_records(house, project) == {}

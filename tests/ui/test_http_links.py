"""Corrections by people over HTTP: pairs that are the same failure, different ones, or parts of one, and their undo."""

from typing import Any

import pytest
from agents.router_house import NOW, PROJECT
from ui.http_front import RunningFront, put_task

from counterpoint.proto.attempts import Attempt, ReportOutcome, TaskOutcomeReported
from counterpoint.proto.interventions import AmendTask
from counterpoint.proto.links import Link, RemovedLink, Side, link_id
from counterpoint.router.handlers import LINEAGE_SOURCE
from counterpoint.router.intake.task_links import PARTS_LIMIT

ESCALATED: dict[str, Any] = {"escalation": {"to": "calling_llm", "code": "low_confidence"}}


async def tasks(front: RunningFront, *ids: str, **more: Any) -> None:
    for each in ids:
        await front.me.post("/v1/tasks", json={"kind": "question", "description": "x", "task_id": each})
        put_task(front, each, **({"state": "input_required", "waiting_for": "documents"} | ESCALATED | more))


def attempt(front: RunningFront, attempt_id: str, task_id: str, **more: Any) -> None:
    known = Attempt(
        attempt_id=attempt_id, task_id=task_id, project=PROJECT, attempt=1, description="d", tried="x", by="ops", at=NOW
    ).model_copy(update=more)
    front.house.put("attempts", attempt_id, known.model_dump(mode="json", exclude_none=True))


def linked(front: RunningFront) -> list[tuple[str, tuple[str, ...]]]:
    kept = [Link.model_validate(body) for body in front.house.kept("links").values()]
    return sorted((link.relation, tuple(side.task_id for side in link.pair)) for link in kept)


async def related(front: RunningFront, relation: str, *ids: str) -> int:
    return (await front.me.post("/v1/links", json={"relation": relation, "tasks": ids})).status_code


async def test_every_pair_is_stored_with_error_signature_and_job(front: RunningFront) -> None:
    job = {"namespace": "shop", "name": "load"}
    await tasks(front, "t1", "t2", "t3", error_message="Error: x", error_signature="s1", target={"job": job})
    response = await front.me.post("/v1/links", json={"relation": "same", "tasks": ["t1", "t2", "t3"], "reason": "one"})
    assert response.status_code == 201
    assert linked(front) == [("same", ("t1", "t2")), ("same", ("t1", "t3")), ("same", ("t2", "t3"))]
    kept = front.house.kept("links")[link_id("t2", "t1")]
    assert (kept["by"], kept["by_kind"], kept["reason"]) == ("me", "person", "one")
    assert kept["pair"][0] == {"task_id": "t1", "error_signature": "s1", "error_message": "Error: x", "job": job}
    listed = (await front.me.get("/v1/links", params={"task_id": "t3"})).json()["items"]
    assert [[side["task_id"] for side in each["pair"]] for each in listed] == [["t2", "t3"], ["t1", "t3"]]


async def test_the_last_word_on_a_pair_counts_and_can_be_undone(front: RunningFront) -> None:
    await tasks(front, "t1", "t2")
    await related(front, "same", "t1", "t2")
    await related(front, "different", "t2", "t1")
    assert linked(front) == [("different", ("t2", "t1"))]
    other = await front.me.delete("/v1/links", params={"relation": "same", "task": ["t1", "t2"]})
    assert (other.status_code, len(linked(front))) == (404, 1)
    undone = await front.me.delete("/v1/links", params={"relation": "different", "task": ["t1", "t2"]})
    assert (undone.status_code, linked(front)) == (200, [])


async def test_open_tasks_are_amended_once_per_changed_link(front: RunningFront) -> None:
    await tasks(front, "t1", "t2")
    put_task(front, "t2", state="completed", waiting_for=None, escalation=None)
    attempt(front, "a2", "t2")
    await related(front, "same", "t1", "a2")
    await related(front, "same", "t1", "a2")
    await front.me.delete("/v1/links", params={"relation": "same", "task": ["t1", "a2"]})
    new, removed = front.house.of_type(AmendTask)
    assert (new.task_id, new.links, new.removed_links) == ("t1", (link_id("t1", "t2"),), ())
    assert (removed.task_id, removed.links) == ("t1", ())
    assert removed.removed_links == (RemovedLink(relation="same", task_id="t2", attempt_id="a2"),)


async def test_an_attempt_stands_for_its_task(front: RunningFront) -> None:
    await tasks(front, "t1")
    attempt(front, "a7", "past-7", error_signature="s7")
    assert await related(front, "different", "t1", "a7") == 201
    assert linked(front) == [("different", ("t1", "past-7"))]


@pytest.mark.parametrize(
    ("ids", "field"),
    [(["t1"], "tasks"), (["t1", "t1"], "tasks"), (["t1", "nowhere"], "tasks[1]"), (["t1", "a1"], "tasks")],
)
async def test_a_pair_is_of_two_tasks_that_are_there(front: RunningFront, ids: list[str], field: str) -> None:
    await tasks(front, "t1")
    attempt(front, "a1", "t1")
    response = await front.me.post("/v1/links", json={"relation": "same", "tasks": ids})
    assert (response.status_code, response.json()["errors"][0]["field"]) == (422, field)
    assert linked(front) == []


async def test_parts_of_a_task_are_not_escalated_and_are_resolved_with_it(front: RunningFront) -> None:
    await tasks(front, "t1", "t2", "t3")
    await related(front, "merged", "t2", "t3")
    await related(front, "merged", "t1", "t2")
    asking = (await front.me.get("/v1/escalations")).json()["items"]
    assert [each["task_id"] for each in asking] == ["t1"]
    await front.me.post("/v1/tasks/t1/outcome", json={"outcome": "succeeded", "note": "renewed the certificate"})
    told = {one.task_id: one for one in front.house.of_type(TaskOutcomeReported)}
    assert set(told) == {"t1", "t2", "t3"}
    assert {(told[part].fixed_by, told[part].note) for part in ("t2", "t3")} == {
        ("something_else", "renewed the certificate")
    }


async def test_a_part_asks_for_itself_again_when_its_whole_has_ended(front: RunningFront) -> None:
    await tasks(front, "t1", "t2", "t3")
    await related(front, "merged", "t1", "t2")
    await related(front, "merged", "t3", "t1")
    put_task(front, "t1", state="cancelled", waiting_for=None, escalation=None)
    asking = (await front.me.get("/v1/escalations")).json()["items"]
    assert {each["task_id"] for each in asking} == {"t2", "t3"}


async def test_parts_that_lineage_knows_of_are_resolved_too_and_claims_of_a_submitter_are_not(
    front: RunningFront,
) -> None:
    claimed = {"merged": [{"task_id": "t3"}], "merged_into": "t3"}
    await tasks(front, "incident-1", "incident-2", "t3", "t4", context=claimed)
    live = {"merged": [{"task_id": "incident-2"}]}
    front.house.put("incidents", "incident-1", {"incident_id": "incident-1", "live": live})
    front.house.put("incidents", "incident-2", {"incident_id": "incident-2", "live": {"merged_into": "incident-1"}})
    asking = (await front.me.get("/v1/escalations")).json()["items"]
    assert {each["task_id"] for each in asking} == {"incident-1", "t3", "t4"}
    await front.me.post("/v1/tasks/t4/outcome", json={"outcome": "succeeded", "note": "renewed the certificate"})
    await front.me.post("/v1/tasks/incident-1/outcome", json={"outcome": "succeeded", "note": "renewed it"})
    assert {one.task_id for one in front.house.of_type(TaskOutcomeReported)} == {"t4", "incident-1", "incident-2"}


async def test_a_part_is_not_made_the_whole_of_others(front: RunningFront) -> None:
    await tasks(front, "t1", "t2", "t3")
    await related(front, "merged", "t1", "t2")
    assert await related(front, "merged", "t2", "t3") == 422
    assert await related(front, "merged", "t2", "t1") == 422


async def test_an_undone_merge_leaves_both_as_they_were(front: RunningFront) -> None:
    await tasks(front, "t1", "t2")
    await related(front, "merged", "t1", "t2")
    await front.me.delete("/v1/links", params={"relation": "merged", "task": ["t1", "t2"]})
    asking = (await front.me.get("/v1/escalations")).json()["items"]
    assert {each["task_id"] for each in asking} == {"t1", "t2"}
    await front.me.post("/v1/tasks/t1/outcome", json={"outcome": "succeeded"})
    assert [one.task_id for one in front.house.of_type(TaskOutcomeReported)] == ["t1"]


async def test_a_report_links_different_attempts_as_different(front: RunningFront) -> None:
    await tasks(front, "t1")
    attempt(front, "a7", "past-7")
    body = {"outcome": "succeeded", "by": "something-else", "note": "unlocked the user", "not_same": ["a7"]}
    assert (await front.me.post("/v1/tasks/t1/outcome", json=body)).status_code == 202
    (told,) = front.house.of_type(TaskOutcomeReported)
    assert (told.fixed_by, told.not_same, told.by) == ("something_else", ("a7",), "me")
    assert linked(front) == [("different", ("t1", "past-7"))]
    (kept,) = front.house.kept("links").values()
    assert (kept["pair"][1]["attempt_id"], kept["reason"]) == ("a7", "unlocked the user")


@pytest.mark.parametrize(("named", "problem"), [("nowhere", "is neither a task"), ("a1", "is an attempt of this task")])
async def test_only_attempts_of_others_are_kept_apart(front: RunningFront, named: str, problem: str) -> None:
    await tasks(front, "t1")
    attempt(front, "a1", "t1")
    response = await front.me.post("/v1/tasks/t1/outcome", json={"outcome": "failed", "not_same": [named]})
    (error,) = response.json()["errors"]
    assert (response.status_code, error["field"]) == (422, "not_same[0]")
    assert problem in error["problem"]
    assert front.house.of_type(TaskOutcomeReported) == []


@pytest.mark.parametrize("body", [{"outcome": "failed", "by": "nothing"}, {"outcome": "succeeded", "by": "luck"}])
async def test_the_cause_is_one_of_a_success(front: RunningFront, body: dict[str, Any]) -> None:
    await tasks(front, "t1")
    response = await front.me.post("/v1/tasks/t1/outcome", json=body)
    assert (response.status_code, response.json()["errors"][0]["field"]) == (422, "by")


async def test_merging_needs_a_person_and_linking_the_right_to_report(front: RunningFront) -> None:
    await tasks(front, "t1", "t2")
    body = {"relation": "merged", "tasks": ["t1", "t2"]}
    async with front.as_principal("looker", "read") as looker, front.as_principal("bot", "read", "report") as bot:
        assert (await looker.post("/v1/links", json=body | {"relation": "same"})).status_code == 403
        assert (await bot.post("/v1/links", json=body | {"relation": "same"})).status_code == 201
        assert (await bot.post("/v1/links", json=body)).status_code == 403
        assert len((await looker.get("/v1/links")).json()["items"]) == 1


async def test_unexplained_recoveries_are_listed_and_answered_after_the_end(front: RunningFront) -> None:
    need = {"kind": "outcome", "what": "say what was changed", "how": "counterpoint outcome t1"}
    await tasks(front, "t1", state="completed", resolution="resolved", waiting_for=None, escalation=None, needs=[need])
    front.house.put("tasks", "t1", front.house.kept("tasks")["t1"])
    response = await front.me.get("/v1/recoveries")
    assert [each["needs"] for each in response.json()["items"]] == [[need]]
    noted = await front.me.post("/v1/tasks/t1/outcome", json={"outcome": "succeeded", "note": "added a disk"})
    assert (noted.status_code, noted.json()["late"]) == (202, False)


async def test_the_same_cause_again_is_no_conflict(front: RunningFront) -> None:
    known = {"outcome": "superseded", "evidence": "reported", "by": "me", "fixed_by": "something_else"}
    lesson = {"outcome": "succeeded", "evidence": "reported", "by": "me"}
    ended = {"state": "completed", "waiting_for": None, "escalation": None, "resolution": "resolved"}
    await tasks(front, "t1", attempt=2, outcomes={"1": known, "2": lesson}, **ended)
    body = {"outcome": "succeeded", "by": "something_else", "note": "unlocked the user"}
    response = await front.me.post("/v1/tasks/t1/outcome", json=body)
    assert (response.status_code, response.json()["late"]) == (202, False)


@pytest.mark.parametrize(("said", "status"), [(None, 202), ("proposal", 409)])
async def test_a_cause_is_added_where_none_was_said(front: RunningFront, said: str | None, status: int) -> None:
    known = {"outcome": "succeeded", "evidence": "reported", "by": "me"} | ({"fixed_by": said} if said else {})
    ended = {"state": "completed", "waiting_for": None, "escalation": None, "resolution": "resolved"}
    await tasks(front, "t1", attempt=1, outcomes={"1": known}, **ended)
    body = {"outcome": "succeeded", "by": "something_else", "note": "unlocked the user"}
    response = await front.me.post("/v1/tasks/t1/outcome", json=body)
    assert (response.status_code, response.json().get("late", False)) == (status, False)


async def test_parts_get_the_act_that_was_proposed_for_the_whole(front: RunningFront) -> None:
    await tasks(front, "t1", waiting_for="outcome", escalation=None, attempt=1, proposal="text")
    await tasks(front, "t2")
    attempt(front, "a1", "t1", tried="Restart the pool")
    await related(front, "merged", "t1", "t2")
    await front.me.post("/v1/tasks/t1/outcome", json={"outcome": "succeeded"})
    told = {one.task_id: one for one in front.house.of_type(TaskOutcomeReported)}
    assert (told["t2"].fixed_by, told["t2"].note) == ("something_else", "Restart the pool")


async def test_a_recovery_that_a_run_shows_says_nothing_about_the_parts(front: RunningFront) -> None:
    await tasks(front, "t1", "t2")
    await related(front, "merged", "t1", "t2")
    body = {"task_id": "t1", "outcome": "succeeded", "note": "Run 7 completed."}
    await front.house.deliver(ReportOutcome, body, event=(LINEAGE_SOURCE, "e1"))
    assert [one.task_id for one in front.house.of_type(TaskOutcomeReported)] == ["t1"]


async def test_a_declaration_that_is_repeated_starts_no_work(front: RunningFront) -> None:
    await tasks(front, "t1", "t2", "t3")
    await related(front, "same", "t1", "t2")
    assert [each.task_id for each in front.house.of_type(AmendTask)] == ["t1", "t2"]
    assert await related(front, "same", "t2", "t1") == 201
    assert len(front.house.of_type(AmendTask)) == 2
    await related(front, "same", "t1", "t2", "t3")
    more = front.house.of_type(AmendTask)[2:]
    assert [(each.task_id, len(each.links)) for each in more] == [("t1", 1), ("t3", 2), ("t2", 1)]
    await related(front, "different", "t1", "t2")
    assert len(front.house.of_type(AmendTask)) == 7


async def test_a_success_of_one_with_as_many_parts_as_are_allowed_is_reported_for_all(front: RunningFront) -> None:
    parts = [f"p{n}" for n in range(PARTS_LIMIT)]
    await tasks(front, "t1", "one-more")
    for each in parts:
        pair = (Side(task_id="t1", error_message="x" * 15_000), Side(task_id=each, error_message="y" * 15_000))
        known = Link(
            link_id=link_id("t1", each),
            project=PROJECT,
            relation="merged",
            pair=pair,
            by="me",
            by_kind="person",
            at=NOW,
        )
        front.house.put("links", known.link_id, known.model_dump(mode="json", exclude_none=True))
    assert await related(front, "merged", "t1", "one-more") == 422
    response = await front.me.post("/v1/tasks/t1/outcome", json={"outcome": "succeeded", "note": "opened the port"})
    assert response.status_code == 202
    assert {told.task_id for told in front.house.of_type(TaskOutcomeReported)} == {"t1", *parts}

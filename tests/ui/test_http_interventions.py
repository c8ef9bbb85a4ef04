"""Outcomes, overrides and cancellations of a task over HTTP; a late one is marked as late."""

from typing import Any

import pytest
from agents.router_house import PROJECT
from ui.http_front import RunningFront, put_task

from counterpoint.proto.attempts import TaskOutcomeReported
from counterpoint.proto.interventions import CancelTask, TaskOverridden

BODY = {"kind": "question", "description": "How long are orders kept?"}


async def test_an_outcome_is_reported_under_the_principals_name(front: RunningFront) -> None:
    await front.me.post("/v1/tasks", json=BODY | {"task_id": "t1"})
    body = {"outcome": "failed", "attempt": 1, "note": "no change", "by_kind": "agent", "evidence": "observed"}
    response = await front.me.post("/v1/tasks/t1/outcome", json=body)
    noted = {"task_id": "t1", "state": "submitted", "late": False, "ignored": ["by_kind", "evidence"]}
    assert (response.status_code, response.json()) == (202, noted)
    (told,) = front.house.of_type(TaskOutcomeReported)
    assert (told.by, told.by_kind, told.evidence, told.attempt) == ("me", "person", "reported", 1)
    assert front.house.line("t1")[-1].agent == "human"


async def test_another_outcome_for_a_known_attempt_is_409(front: RunningFront) -> None:
    await front.me.post("/v1/tasks", json=BODY | {"task_id": "t1"})
    put_task(front, "t1", "working", outcomes={"1": {"outcome": "failed", "evidence": "reported", "by": "me"}})
    response = await front.me.post("/v1/tasks/t1/outcome", json={"outcome": "succeeded", "attempt": 1})
    assert (response.status_code, response.json()["errors"][0]["field"]) == (409, "outcome")


REPORTED = {"outcome": "failed", "evidence": "reported", "by": "me"}
SUPERSEDED = {"outcome": "superseded", "fixed_by": "something_else"}
OBSERVED = REPORTED | {"evidence": "observed"}


@pytest.mark.parametrize(
    ("attempt", "more"),
    [
        (9, {"state": "input_required", "waiting_for": "outcome", "attempt": 2, "outcomes": {"1": REPORTED}}),
        (3, {"state": "completed", "attempt": 2, "outcomes": {"1": REPORTED, "2": OBSERVED}}),
        (4, {"state": "input_required", "waiting_for": "override", "attempt": 2, "outcomes": {"1": REPORTED}}),
        (1, {"state": "cancelled"}),
    ],
)
async def test_an_outcome_of_an_attempt_that_was_never_made_is_422(
    front: RunningFront, attempt: int, more: dict[str, Any]
) -> None:
    await front.me.post("/v1/tasks", json=BODY | {"task_id": "t1"})
    put_task(front, "t1", **more)
    response = await front.me.post("/v1/tasks/t1/outcome", json={"outcome": "failed", "attempt": attempt})
    assert (response.status_code, [each["field"] for each in response.json()["errors"]]) == (422, ["attempt"])
    assert front.house.of_type(TaskOutcomeReported) == []


async def test_a_person_who_is_asked_may_report_their_own_attempt(front: RunningFront) -> None:
    await front.me.post("/v1/tasks", json=BODY | {"task_id": "t1"})
    put_task(front, "t1", "input_required", waiting_for="override", attempt=2, outcomes={"2": REPORTED})
    response = await front.me.post("/v1/tasks/t1/outcome", json={"outcome": "succeeded", "attempt": 3})
    assert (response.status_code, response.json()["late"]) == (202, False)


async def test_a_report_that_is_repeated_word_for_word_needs_the_number_of_its_attempt(front: RunningFront) -> None:
    await front.me.post("/v1/tasks", json=BODY | {"task_id": "t1"})
    known = {"1": REPORTED | {"outcome": "failed", "note": "no change"}}
    put_task(front, "t1", "input_required", waiting_for="outcome", attempt=2, outcomes=known)
    report = {"outcome": "failed", "note": "no change"}
    response = await front.me.post("/v1/tasks/t1/outcome", json=report)
    assert (response.status_code, response.json()["code"]) == (409, "conflict")
    assert response.json()["errors"] == [
        {
            "field": "attempt",
            "problem": "attempt 1 has this outcome and note already; if they are about another attempt, name it",
        }
    ]
    for more in ({"attempt": 2}, {"note": "still no change"}, {"note": None}):
        response = await front.me.post("/v1/tasks/t1/outcome", json=report | more)
        assert response.status_code == 202, more


async def test_another_outcome_without_a_number_is_409_when_the_task_has_ended(front: RunningFront) -> None:
    await front.me.post("/v1/tasks", json=BODY | {"task_id": "t1"})
    known = {"1": REPORTED, "3": REPORTED | {"outcome": "succeeded"}}
    put_task(front, "t1", "completed", resolution="resolved", attempt=3, outcomes=known)
    response = await front.me.post("/v1/tasks/t1/outcome", json={"outcome": "failed"})
    assert (response.status_code, response.json()["code"]) == (409, "conflict")
    assert "attempt 3" in response.json()["errors"][0]["problem"]
    again = await front.me.post("/v1/tasks/t1/outcome", json={"outcome": "succeeded"})
    assert (again.status_code, again.json()["late"]) == (202, False)


@pytest.mark.parametrize(
    ("more", "late"),
    [
        ({"state": "completed", "resolution": "answered", "attempt": 1}, True),
        ({"state": "cancelled", "attempt": 1}, True),
        ({"state": "completed", "resolution": "proposed", "attempt": 1}, False),
        ({"state": "completed", "resolution": "resolved", "attempt": 1, "outcomes": {"1": OBSERVED}}, False),
        ({"state": "failed", "attempt": 1, "outcomes": {"1": OBSERVED}}, False),
        ({"state": "input_required", "waiting_for": "outcome", "attempt": 1}, False),
    ],
)
async def test_an_outcome_after_the_end_is_late_unless_it_teaches_something(
    front: RunningFront, more: dict[str, Any], late: bool
) -> None:
    await front.me.post("/v1/tasks", json=BODY | {"task_id": "t1"})
    put_task(front, "t1", **more)
    response = await front.me.post("/v1/tasks/t1/outcome", json={"outcome": "succeeded"})
    noted = {"task_id": "t1", "state": more["state"], "late": late, "ignored": []}
    assert (response.status_code, response.json()) == (202, noted)


@pytest.mark.parametrize(
    ("stored", "report", "late"),
    [
        ({"note": "a"}, {"note": "a"}, False),
        ({"note": "a"}, {}, False),
        ({"note": "a"}, {"note": "b"}, True),
        ({}, {"note": "b"}, False),
        ({"note": "a"}, {"note": "b", "by": "something_else"}, False),
        (SUPERSEDED | {"note": "a"}, {"note": "b", "by": "something_else"}, True),
        (SUPERSEDED, {"note": "b", "by": "something_else"}, False),
    ],
)
async def test_a_report_that_changes_nothing_of_a_reported_success_is_late(
    front: RunningFront, stored: dict[str, str], report: dict[str, str], late: bool
) -> None:
    await front.me.post("/v1/tasks", json=BODY | {"task_id": "t1"})
    outcome = REPORTED | {"outcome": "succeeded"} | stored
    put_task(front, "t1", "completed", resolution="resolved", attempt=1, outcomes={"1": outcome})
    response = await front.me.post("/v1/tasks/t1/outcome", json={"outcome": "succeeded"} | report)
    assert (response.status_code, response.json()["late"]) == (202, late)


@pytest.mark.parametrize(("path", "body"), [("override", {"instruction": "x", "reasoning": "y"}), ("cancel", {})])
async def test_a_report_after_the_end_is_accepted_as_late(front: RunningFront, path: str, body: dict[str, str]) -> None:
    await front.me.post("/v1/tasks", json=BODY | {"task_id": "t1"})
    put_task(front, "t1", "completed")
    response = await front.me.post(f"/v1/tasks/t1/{path}", json=body)
    noted = {"task_id": "t1", "state": "completed", "late": True, "ignored": []}
    assert (response.status_code, response.json()) == (202, noted)
    async with front.as_principal("blind", "submit", "override") as blind:
        told = await blind.post(f"/v1/tasks/t1/{path}", json=body)
    assert (told.status_code, told.json()) == (202, {"task_id": "t1", "late": False, "ignored": []})


SAID = [
    ("outcome", {"outcome": "failed"}),
    ("override", {"instruction": "x", "reasoning": "y"}),
    ("cancel", {"reason": "x"}),
]


@pytest.mark.parametrize(("path", "body"), SAID)
async def test_unknown_fields_of_a_report_are_named(front: RunningFront, path: str, body: dict[str, str]) -> None:
    await front.me.post("/v1/tasks", json=BODY | {"task_id": "t1"})
    response = await front.me.post(f"/v1/tasks/t1/{path}", json=body | {"reasn": "misspelt", "project": PROJECT})
    assert (response.status_code, response.json()["ignored"]) == (202, ["reasn"])


@pytest.mark.parametrize(("path", "body"), SAID)
async def test_a_report_with_another_project_than_the_url_is_422(
    front: RunningFront, path: str, body: dict[str, str]
) -> None:
    await front.me.post("/v1/tasks", json=BODY | {"task_id": "t1"})
    response = await front.me.post(f"/v1/tasks/t1/{path}", json=body | {"project": "other"})
    assert (response.status_code, [each["field"] for each in response.json()["errors"]]) == (422, ["project"])


@pytest.mark.parametrize(("kind", "agent"), [("person", "human"), ("agent", "calling_llm")])
async def test_an_override_is_recorded_under_the_principals_kind(front: RunningFront, kind: str, agent: str) -> None:
    await front.me.post("/v1/tasks", json=BODY | {"task_id": "t1"})
    body = {"instruction": "Check the firewall", "reasoning": "DNS was looked at", "constraints": ["no restart"]}
    async with front.as_principal("lead", "override", kind=kind) as lead:
        response = await lead.post("/v1/tasks/t1/override", json=body | {"by": "x", "by_kind": "person"})
    assert response.status_code == 202
    (told,) = front.house.of_type(TaskOverridden)
    given = told.override
    assert (given.by, given.by_kind, given.constraints) == ("lead", kind, ("no restart",))
    said = front.house.line("t1")[-1]
    assert (said.action_id, said.agent, said.result) == (told.action_id, agent, "Check the firewall")
    assert said.after == (front.house.line("t1")[-2].action_id,)


async def test_only_its_submitter_or_an_overrider_cancels_a_task(front: RunningFront) -> None:
    async with front.as_principal("ann", "submit") as ann, front.as_principal("bob", "submit") as bob:
        assert (await ann.post("/v1/tasks", json=BODY | {"task_id": "t1"})).status_code == 202
        refused = await bob.post("/v1/tasks/t1/cancel")
        assert (refused.status_code, refused.json()["code"]) == (403, "role")
        assert "another principal submitted" in refused.json()["detail"]
        # Nor does who submits the same task again own it.
        assert (await bob.post("/v1/tasks", json=BODY | {"task_id": "t1"})).status_code == 202
        assert (await bob.post("/v1/tasks/t1/cancel")).status_code == 403
        assert (await ann.post("/v1/tasks/t1/cancel")).status_code == 202
    async with front.as_principal("lead", "override") as lead:
        assert (await lead.post("/v1/tasks/t1/cancel")).status_code == 202
    assert [told.by for told in front.house.of_type(CancelTask)] == ["ann", "lead"]


async def test_a_task_is_called_off_with_a_reason_or_without(front: RunningFront) -> None:
    await front.me.post("/v1/tasks", json=BODY | {"task_id": "t1"})
    assert (await front.me.post("/v1/tasks/t1/cancel")).status_code == 202
    assert (await front.me.post("/v1/tasks/t1/cancel", json={"reason": "fixed by hand"})).status_code == 202
    assert [(told.by, told.by_kind, told.reason) for told in front.house.of_type(CancelTask)] == [
        ("me", "person", None),
        ("me", "person", "fixed by hand"),
    ]

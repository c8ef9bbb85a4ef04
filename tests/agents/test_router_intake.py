"""Events that arrive over the bus: one commit per task, one effect per event, and every refusal announced."""

from datetime import timedelta
from typing import Any

import pytest
from agents.router_house import NOW, PROJECT, House

from counterpoint.bus.codec import Inbound
from counterpoint.guard.policy import policy
from counterpoint.proto.attempts import ReportOutcome, TaskOutcomeReported
from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.errors import Permanent, Problem, Transient
from counterpoint.proto.memory import Get
from counterpoint.proto.tasks import SubmitTask, Task, TaskRejected, TaskRouted, TaskSubmitted
from counterpoint.router.handlers import UNKNOWN_TASK_DELIVERIES, rejected

BODY = {"kind": "troubleshoot", "description": "The import fails", "error_message": "timed out"}


@pytest.fixture
def house() -> House:
    return House()


async def test_a_task_is_accepted_routed_and_decided_in_one_commit(house: House) -> None:
    body = BODY | {"task_id": "t1", "session_id": "s1", "project": PROJECT, "descripton": "misspelt"}
    assert await house.deliver(SubmitTask, body, event=("ci", "42")) == "done"
    (submitted,) = house.of_type(TaskSubmitted)
    (routed,) = house.of_type(TaskRouted)
    (decision,) = house.of_type(DecisionMade)
    assert (submitted.task_id, submitted.submitted_by, submitted.ignored) == ("t1", "ci", ("descripton",))
    assert (routed.lane, routed.submitted_by, routed.submitted_by_kind) == ("investigate", "ci", "system")
    assert routed.task.description == BODY["description"]
    assert routed.submitted_at == NOW
    assert (decision.agent, decision.decision, decision.reasoning) == ("router", routed.lane, routed.reason)
    assert (decision.task_id, decision.session_id) == ("t1", "s1")
    submit, route = house.line("t1")
    assert (submit.kind, submit.reasoning, submit.agent) == ("submit", BODY["description"], "router")
    assert (route.kind, route.action_id, route.after) == ("route", routed.action_id, (submit.action_id,))
    assert route.decision_id == decision.decision_id


async def test_a_new_task_takes_one_request_and_a_known_one_is_read(house: House) -> None:
    body = BODY | {"task_id": "t1"}
    assert await house.deliver(SubmitTask, body, event=("ci", "42")) == "done"
    assert (house.requests, house.queries) == (1, [])
    assert await house.deliver(SubmitTask, body, sequence=2, event=("ci", "42")) == "done"
    assert {query.store for query in house.queries if isinstance(query, Get)} == {"submissions"}
    assert len(house.of_type(TaskRouted)) == 1


async def test_bare_json_without_an_id_is_a_new_task_each_time(house: House) -> None:
    for sequence in (1, 2):
        assert await house.deliver(SubmitTask, BODY, sequence=sequence) == "done"
    first, second = house.of_type(TaskRouted)
    assert first.task_id != second.task_id
    assert first.submitted_by == "publisher"


async def test_the_same_event_twice_has_one_effect(house: House) -> None:
    for sequence in (1, 2):
        assert await house.deliver(SubmitTask, BODY, sequence=sequence, event=("ci", "42")) == "done"
    assert len(house.of_type(TaskRouted)) == 1
    assert await house.deliver(SubmitTask, BODY, sequence=3, event=("ci", "43")) == "done"
    assert await house.deliver(SubmitTask, BODY, sequence=4, event=("other", "42")) == "done"
    assert len(house.of_type(TaskRouted)) == 3


async def test_the_same_task_twice_has_one_effect_and_other_content_is_a_conflict(house: House) -> None:
    body = BODY | {"task_id": "t1"}
    assert await house.deliver(SubmitTask, body, sequence=1) == "done"
    assert await house.deliver(SubmitTask, body, sequence=2) == "done"
    assert house.of_type(TaskRejected) == []
    assert await house.deliver(SubmitTask, body | {"title": "other"}, sequence=3, event=("ci", "9")) == "conflict"
    assert len(house.of_type(TaskRouted)) == 1
    (refused,) = house.of_type(TaskRejected)
    assert (refused.code, refused.task_id, refused.ce_id, refused.stream_sequence) == ("conflict", "t1", "9", 3)
    assert [problem.field for problem in refused.errors] == ["task_id"]


async def test_two_concurrent_submissions_are_one_acceptance_and_one_duplicate(house: House) -> None:
    body = BODY | {"task_id": "t1"}
    other = House()
    assert await other.deliver(SubmitTask, body, sequence=7) == "done"

    def overtaken() -> None:
        house.records |= other.records

    house.before_commit = overtaken
    assert await house.deliver(SubmitTask, body, sequence=8) == "done"
    assert house.of_type(TaskRouted) == []
    assert len(house.kept("actions")) == 2


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"project": "billing"}, "project"),
        ({"deadline": "2020-01-01T00:00:00Z"}, "deadline"),
        ({"kind": "guess"}, "kind"),
        ({"description": 3}, "description"),
    ],
)
async def test_an_invalid_task_is_announced_with_its_field(house: House, more: dict[str, Any], field: str) -> None:
    assert await house.deliver(SubmitTask, BODY | {"task_id": "t1"} | more) == "invalid"
    (refused,) = house.of_type(TaskRejected)
    assert (refused.code, refused.task_id) == ("invalid", "t1")
    assert [problem.field for problem in refused.errors] == [field]
    assert house.of_type(TaskRouted) == []
    assert house.kept("submissions") == {}


def task_record(**more: Any) -> dict[str, Any]:
    known = {"task_id": "t1", "project": PROJECT, "kind": "troubleshoot", "state": "working"}
    known |= {"description": "x", "submitted_by": "ci", "submitted_at": NOW}
    return Task.model_validate(known | more).model_dump(mode="json", exclude_none=True)


async def test_an_outcome_is_handed_on_and_follows_the_proposal_on_the_line(house: House) -> None:
    await house.deliver(SubmitTask, BODY | {"task_id": "t1"})
    for kind in ("propose", "late"):
        action = {"action_id": f"a-{kind}", "task_id": "t1", "agent": "manager", "kind": kind, "reasoning": "x"}
        house.put("actions", f"a-{kind}", action | {"at": NOW.isoformat()})
    body = {"task_id": "t1", "attempt": 1, "outcome": "failed", "error_message": "timed out", "note": "no change"}
    assert await house.deliver(ReportOutcome, body, sequence=2) == "done"
    (told,) = house.of_type(TaskOutcomeReported)
    assert (told.attempt, told.outcome, told.error_message, told.note) == (1, "failed", "timed out", "no change")
    assert (told.evidence, told.by, told.by_kind) == ("reported", "publisher", "system")
    said = house.line("t1")[-1]
    assert (said.action_id, said.kind, said.reasoning, said.result) == (
        told.action_id,
        "outcome",
        "no change",
        "failed",
    )
    assert said.after == ("a-propose",)


async def test_only_outcomes_of_lineage_are_observed(house: House) -> None:
    await house.deliver(SubmitTask, BODY | {"task_id": "t1"})
    body = {"task_id": "t1", "outcome": "succeeded"}
    for sequence, source in ((2, "counterpoint/lineage"), (3, "ci"), (4, "counterpoint/lineage.")):
        assert await house.deliver(ReportOutcome, body, sequence=sequence, event=(source, "1")) == "done"
    assert [told.evidence for told in house.of_type(TaskOutcomeReported)] == ["observed", "reported", "reported"]


async def test_the_same_outcome_event_twice_has_one_effect(house: House) -> None:
    await house.deliver(SubmitTask, BODY | {"task_id": "t1"})
    body = {"task_id": "t1", "outcome": "failed"}
    for sequence in (2, 3):
        assert await house.deliver(ReportOutcome, body, sequence=sequence, event=("ci", "7")) == "done"
    assert len(house.of_type(TaskOutcomeReported)) == 1


async def test_the_same_outcome_in_bare_json_twice_within_a_day_has_one_effect(house: House) -> None:
    await house.deliver(SubmitTask, BODY | {"task_id": "t1"})
    body = {"task_id": "t1", "outcome": "failed"}
    for sequence in (2, 3):
        assert await house.deliver(ReportOutcome, body, sequence=sequence, event=("", "7")) == "done"
    assert len(house.of_type(TaskOutcomeReported)) == 1
    other = body | {"note": "another one"}
    assert await house.deliver(ReportOutcome, other, sequence=4, event=("", "7")) == "idempotency_conflict"
    house.now += timedelta(days=1)
    assert await house.deliver(ReportOutcome, other, sequence=5, event=("", "7")) == "done"
    assert len(house.of_type(TaskOutcomeReported)) == 2


async def test_an_outcome_that_is_ahead_of_its_submission_waits_for_it(house: House) -> None:
    body = {"task_id": "t1", "outcome": "failed"}
    for delivered in range(1, UNKNOWN_TASK_DELIVERIES):
        with pytest.raises(Transient):
            await house.deliver(ReportOutcome, body, sequence=2, event=("ci", "7"), delivered=delivered)
    assert house.log == []
    await house.deliver(SubmitTask, BODY | {"task_id": "t1"}, sequence=3)
    assert (
        await house.deliver(ReportOutcome, body, sequence=2, event=("ci", "7"), delivered=UNKNOWN_TASK_DELIVERIES)
        == "done"
    )
    (told,) = house.of_type(TaskOutcomeReported)
    assert told.task_id == "t1"


async def test_an_outcome_of_an_unknown_task_is_rejected_in_the_end(house: House) -> None:
    body = {"task_id": "nobody", "outcome": "failed"}
    assert (
        await house.deliver(ReportOutcome, body, event=("ci", "7"), delivered=UNKNOWN_TASK_DELIVERIES) == "unknown_task"
    )
    (refused,) = house.of_type(TaskRejected)
    assert (refused.code, refused.task_id, refused.ce_id) == ("unknown_task", "nobody", "7")
    assert house.of_type(TaskOutcomeReported) == []


@pytest.mark.parametrize(
    ("known", "evidence", "source", "expected"),
    [
        ("succeeded", "reported", "ci", "conflict"),
        ("failed", "reported", "ci", "done"),
        ("succeeded", "observed", "ci", "done"),
        ("succeeded", "observed", "counterpoint/lineage", "conflict"),
    ],
)
async def test_another_outcome_for_the_same_attempt_conflicts_unless_it_replaces_an_observed_one(
    house: House, known: str, evidence: str, source: str, expected: str
) -> None:
    await house.deliver(SubmitTask, BODY | {"task_id": "t1"})
    house.put("tasks", "t1", task_record(outcomes={"1": {"outcome": known, "evidence": evidence, "by": "x"}}))
    body = {"task_id": "t1", "attempt": 1, "outcome": "failed"}
    assert await house.deliver(ReportOutcome, body, sequence=2, event=(source, "1")) == expected


@pytest.mark.parametrize(("source", "expected"), [("ci", "conflict"), ("counterpoint/lineage", "done")])
async def test_after_the_end_a_report_without_a_number_may_conflict_and_an_observation_is_handed_on(
    house: House, source: str, expected: str
) -> None:
    await house.deliver(SubmitTask, BODY | {"task_id": "t1"})
    known = {"1": {"outcome": "failed", "evidence": "reported", "by": "x"}}
    house.put("tasks", "t1", task_record(state="cancelled", attempt=1, outcomes=known))
    body = {"task_id": "t1", "outcome": "succeeded"}
    assert await house.deliver(ReportOutcome, body, sequence=2, event=(source, "1")) == expected


async def test_an_outcome_for_another_project_is_invalid(house: House) -> None:
    await house.deliver(SubmitTask, BODY | {"task_id": "t1"})
    body = {"task_id": "t1", "outcome": "failed", "project": "billing"}
    assert await house.deliver(ReportOutcome, body, sequence=2) == "invalid"


@pytest.mark.parametrize("body", [None, [], "text", 3, {}, {"task_id": 3}, {"task_id": "a b\r\nce-id: x"}])
async def test_a_rejection_names_the_task_only_when_its_id_can_be_read(house: House, body: Any) -> None:
    inbound = Inbound(
        id="m", type="", project=PROJECT, subject="s", body=body, time=NOW, trusted=False, stream_sequence=5
    )
    (outgoing,) = rejected(inbound, Permanent("malformed", (Problem(field="", problem="is no JSON"),)))
    assert outgoing.task_id is None
    message = TaskRejected.model_validate(outgoing.data)
    assert (message.code, message.task_id, message.stream_sequence) == ("malformed", None, 5)
    await house.bury(inbound, Permanent("malformed"))


def test_every_type_the_policy_hands_to_the_router_has_a_handler(house: House) -> None:
    assert set(house.handlers) == set(policy().consumed("router"))


async def test_bare_json_with_the_same_id_is_one_task_and_with_another_body_a_conflict(house: House) -> None:
    for sequence in (1, 2):
        assert await house.deliver(SubmitTask, BODY, sequence=sequence, event=("", "nightly")) == "done"
    other = BODY | {"description": "Something else?"}
    assert await house.deliver(SubmitTask, other, sequence=3, event=("", "nightly")) == "idempotency_conflict"
    assert await house.deliver(SubmitTask, BODY, sequence=4, event=("", "another"), project="elsewhere") == "done"
    assert await house.deliver(SubmitTask, other, sequence=5, event=("", "nightly"), project="elsewhere") == "done"

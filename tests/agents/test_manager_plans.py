"""Plans in the manager: their records, the documents that are offered and stored, and what they came to."""

from typing import Any

import pytest
from agents.manager_house import House

from counterpoint.guard.policy import ApprovalPolicy, policy
from counterpoint.proto.approvals import Approval, ApprovalDecided
from counterpoint.proto.ids import document_id
from counterpoint.proto.plans import PlanDocument, PlanNote, PlanRecord
from counterpoint.proto.tasks import Need, TaskCompleted, TaskEscalated

PLAN = "# Plan: load the invoices\n\n## Steps\n\n1. Copy the file. Depends on nothing.\n\n## Open points\n\n- Who?"
DOCUMENT = PlanDocument(path="docs/provider_plan_zeppo.md", system="Zeppo", text="# Provider plan: Zeppo")
NEEDS = (Need(kind="provider", what="an official provider package for Zeppo", how="x"),)


def ruled(rule: str) -> ApprovalPolicy:
    """The policy of the file, with one rule for documents."""
    shipped = policy().approvals
    rules = dict.fromkeys(("supervised", "milestone", "autonomous"), rule)
    return shipped.model_copy(update={"acts": {**shipped.acts, "document": rules}})


def routed(rule: str = "allow") -> House:
    house = House(approvals=ruled(rule))
    house.route(kind="plan", description="Load the invoices of Zeppo", systems=("Zeppo",))
    return house


def stops(house: House, **more: Any) -> str:
    return house.developer("stopped", code="no_provider", needs=NEEDS, text=DOCUMENT.text, plans=(DOCUMENT,), **more)


def stored(house: House) -> list[PlanRecord]:
    return [PlanRecord.model_validate(item.body) for item in house.items("plans")]


def note(house: House) -> PlanNote | None:
    item = house.item("planner_memory", "t1")
    return PlanNote.model_validate(item.body) if item else None


def decide(house: House, decision: str) -> None:
    """A person decides, as the router writes it."""
    item = next(iter(house.items("approvals")))
    approval = Approval.model_validate(item.body)
    state = {"state": decision, "decided_by": "ann", "decided_at": house.now, "reason": "because"}
    after = approval.model_copy(update=state)
    house.put("approvals", item.id, after.model_dump(mode="json", exclude_none=True))
    sha256 = approval.artifact_sha256
    decided = {"decision": decision, "artifact_sha256": sha256, "by": "ann", "task_id": "t1"}
    house.deliver(ApprovalDecided.model_validate({"approval_id": item.id, **decided}))


def test_the_documents_of_a_stop_are_records_and_artifacts_of_the_task_and_of_its_escalation() -> None:
    house = routed()
    stops(house)
    assert {(each.path, each.system, each.text) for each in stored(house)} == {
        (None, None, DOCUMENT.text), (DOCUMENT.path, "Zeppo", DOCUMENT.text),
    }  # fmt: skip
    (artifact,) = house.task().artifacts
    assert (artifact.path, artifact.document_id) == (DOCUMENT.path, document_id(DOCUMENT.path))
    assert house.last(TaskEscalated).artifacts == (artifact,)
    assert note(house) is None, "the task has not ended"


def test_a_later_plan_takes_the_place_of_the_earlier_one() -> None:
    house = routed()
    stops(house)
    house.override()
    house.developer("answered", text=PLAN)
    assert {each.text for each in stored(house) if each.path is None} == {PLAN}
    assert house.task().resolution == "planned"


def test_the_result_of_a_plan_is_stored_when_its_task_ends() -> None:
    house = routed()
    house.developer("answered", text=PLAN)
    assert house.last(TaskCompleted).resolution == "planned"
    found = note(house)
    assert found is not None
    assert found.text == ("Load the invoices of Zeppo; the task ended planned\n1. Copy the file. Depends on nothing.")
    assert (found.outcome, found.systems, found.missing) == ("planned", ("Zeppo",), ())
    house = routed()
    stops(house)
    house.cancel()
    found = note(house)
    assert found is not None
    assert "no official provider of Zeppo; the task ended cancelled; not needed" in found.text
    assert (found.outcome, found.missing) == ("cancelled", ("Zeppo",))


def test_a_task_of_another_kind_has_neither_plan_nor_note() -> None:
    house = House()
    house.route(kind="question", description="Who owns Zeppo?")
    house.developer("answered", text=PLAN)
    assert stored(house) == []
    assert note(house) is None


def test_an_outcome_that_is_reported_of_a_plan_after_its_end_is_remembered_once() -> None:
    house = routed()
    house.developer("answered", text=PLAN)
    house.outcome("failed", note="the share was not mounted")
    found = note(house)
    assert found is not None
    assert found.outcome == "failed"
    assert "reported as failed by ops: the share was not mounted" in found.text
    before = house.item("planner_memory", "t1")
    house.outcome("failed", note="the share was not mounted")
    assert house.item("planner_memory", "t1") == before
    house.outcome("succeeded")
    assert "failed by ops" in (note(house) or found).text
    assert (note(house) or found).outcome == "succeeded"
    assert house.task().state == "completed"


@pytest.mark.parametrize("decision", ["approved", "rejected"])
def test_where_the_policy_asks_documents_are_stored_only_after_an_approval(decision: str) -> None:
    house = routed("ask")
    stops(house)
    assert (house.task().waiting_for, stored(house), house.task().artifacts) == ("approval", [], ())
    approval = Approval.model_validate(next(iter(house.items("approvals"))).body)
    assert (approval.category, approval.artifact) == ("document", f"Store `{DOCUMENT.path}`:\n\n{DOCUMENT.text}")
    decide(house, decision)
    assert house.last(TaskEscalated).code == "no_provider"
    paths = [each.path for each in stored(house) if each.path]
    assert paths == ([DOCUMENT.path] if decision == "approved" else [])
    assert bool(house.task().artifacts) == (decision == "approved")
    if decision == "rejected":
        findings = house.task().findings
        assert findings is not None
        assert "the documents were not approved, so none is stored" in findings.caveats


def test_documents_without_an_approval_in_time_are_not_stored() -> None:
    house = routed("ask")
    stops(house)
    house.wait(2 * 86_400)
    assert house.last(TaskEscalated).code == "no_provider"
    assert [each.path for each in stored(house)] == [None]


def test_documents_other_than_those_approved_are_not_stored() -> None:
    house = routed("ask")
    stops(house)
    item = next(iter(house.items("approvals")))
    body = {**item.body, "held": {**item.body["held"], "plans": [{**DOCUMENT.model_dump(), "text": "delete all"}]}}
    house.put("approvals", item.id, body)
    decide(house, "approved")
    assert [each.path for each in stored(house)] == [None]


def test_where_the_policy_refuses_no_document_is_stored_and_the_plan_is_shown() -> None:
    house = routed("refuse")
    stops(house)
    assert [each.path for each in stored(house)] == [None]
    assert house.task().proposal == DOCUMENT.text
    assert house.task().artifacts == ()

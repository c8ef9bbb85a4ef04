"""A person links or splits failures: waiting tasks whose cards this changes are worked on again, and no others."""

from typing import Literal

import pytest
from agents.manager_house import PROJECT, House

from counterpoint.proto.findings import Citation, Findings, SimilarAttempt
from counterpoint.proto.interventions import AmendTask
from counterpoint.proto.links import Link, RemovedLink, Side, link_id
from counterpoint.proto.tasks import TaskDelegated

Relation = Literal["same", "different", "merged"]


def other_fixed(house: House) -> str:
    """Another task, which an act has fixed. Return the attempt."""
    house.route("other")
    house.developer("proposed", task_id="other")
    house.outcome("succeeded", task_id="other")
    return house.attempt(1, "other").attempt_id


def declared(house: House, relation: Relation) -> int:
    """A person declares the two tasks; return how many attempts this delegates."""
    record_id = link_id("t1", "other")
    pair = (Side(task_id="t1"), Side(task_id="other"))
    link = Link(
        link_id=record_id, project=PROJECT, relation=relation, pair=pair, by="ada", by_kind="person", at=house.now
    )
    house.put("links", record_id, link.model_dump(mode="json"), author="router")
    before = house.names().count("TaskDelegated")
    house.deliver(AmendTask(task_id="t1", by="ada", by_kind="person", reason="split", links=(record_id,)))
    return house.names().count("TaskDelegated") - before


def removed(house: House, relation: Relation) -> int:
    """A person removes the link between the two tasks; return how many attempts this delegates."""
    before = house.names().count("TaskDelegated")
    gone = RemovedLink(relation=relation, task_id="other")
    house.deliver(AmendTask(task_id="t1", by="ada", by_kind="person", reason="undone", removed_links=(gone,)))
    return house.names().count("TaskDelegated") - before


def similar(house: House, attempt_id: str) -> Findings:
    shown = SimilarAttempt(
        id=attempt_id, when=house.now, tried="it", outcome="succeeded", evidence="reported", by="ops", score=0.8
    )
    return Findings(similar_attempts=(shown,))


def cite(house: House, attempt_id: str) -> None:
    """The open proposal cites an attempt."""
    path = f"attempts/{attempt_id}#tried"
    cited = Citation(store="attempts", id=attempt_id, version=1, source_path=path, start=0, end=2, quote="it")
    task = house.task().model_copy(update={"findings": Findings(citations=(cited,))})
    house.put("tasks", "t1", task.model_dump(mode="json", exclude={"version"}, exclude_none=True), author="manager")


@pytest.mark.parametrize("code", ["low_confidence", "no_provider"], ids=["documents", "override"])
def test_a_link_to_a_fixed_failure_starts_the_next_attempt_where_help_is_awaited(code: str) -> None:
    house = House()
    other_fixed(house)
    house.route()
    house.developer("stopped", 0.3, code=code)
    assert declared(house, "same") == 1
    assert house.task().state == "working"
    assert house.last(TaskDelegated).purpose == "work"
    assert house.names()[-2:] == ["TaskResumed", "TaskDelegated"]


def test_a_link_leaves_an_open_proposal_and_a_failure_without_a_fix() -> None:
    house = House()
    other_fixed(house)
    house.route()
    house.developer("proposed")
    assert declared(house, "same") == 0
    unknown = House()
    unknown.route("other")
    unknown.route()
    unknown.developer("stopped", 0.3, code="low_confidence")
    assert declared(unknown, "same") == 0


def test_a_split_replaces_a_proposal_that_rests_on_the_other_failure() -> None:
    house = House()
    attempt_id = other_fixed(house)
    house.route()
    house.developer("proposed")
    cite(house, attempt_id)
    assert declared(house, "different") == 1
    task = house.task()
    assert (task.state, task.proposal, task.findings) == ("working", None, None)
    assert house.last(TaskDelegated).attempt == 2
    house.developer("proposed")
    assert declared(house, "different") == 0


def test_a_split_leaves_a_proposal_that_rests_on_something_else() -> None:
    house = House()
    attempt_id = other_fixed(house)
    house.route()
    house.developer("proposed", findings=similar(house, attempt_id))
    assert declared(house, "different") == 0
    assert house.task().waiting_for == "outcome"


def test_a_split_changes_an_escalated_card_that_shows_the_other_failure() -> None:
    house = House()
    attempt_id = other_fixed(house)
    house.route()
    house.developer("stopped", 0.3, code="low_confidence", findings=similar(house, attempt_id))
    assert declared(house, "different") == 1
    assert house.task().state == "working"


def test_a_removed_split_acts_as_a_link_and_a_removed_link_as_a_split() -> None:
    house = House()
    attempt_id = other_fixed(house)
    house.route()
    house.developer("stopped", 0.3, code="low_confidence")
    assert removed(house, "same") == 0
    assert removed(house, "different") == 1
    assert house.names()[-2:] == ["TaskResumed", "TaskDelegated"]
    house.developer("proposed")
    cite(house, attempt_id)
    assert removed(house, "different") == 0
    assert removed(house, "same") == 1
    assert house.task().proposal is None


def test_a_merge_starts_nothing() -> None:
    house = House()
    attempt_id = other_fixed(house)
    house.route()
    house.developer("stopped", 0.3, code="low_confidence", findings=similar(house, attempt_id))
    assert declared(house, "merged") == 0
    assert removed(house, "merged") == 0


def test_a_task_that_has_ended_is_left_alone() -> None:
    house = House()
    attempt_id = other_fixed(house)
    house.route()
    house.developer("proposed")
    house.outcome("succeeded")
    cite(house, attempt_id)
    assert declared(house, "different") == 0
    assert house.task().state == "completed"

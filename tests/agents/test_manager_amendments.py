"""A task that is pointed at another error begins again, once, in any state."""

import pytest
from agents.manager_house import House

from counterpoint.proto.interventions import AmendTask
from counterpoint.proto.signature import signature
from counterpoint.proto.tasks import JobRef, Target, TaskDelegated

FIRST, REAL = "task_failure", "ConnectionError: could not resolve ldap.internal"


def amendment() -> AmendTask:
    return AmendTask(
        task_id="t1",
        by="lineage",
        by_kind="system",
        reason="prod/orders.fetch is the root cause",
        title="orders.fetch failed: could not resolve ldap.internal",
        error_message=REAL,
        target=Target(job=JobRef(namespace="prod", name="orders.fetch")),
        context={"tries": 3},
    )


@pytest.mark.parametrize("outcome", [None, "proposed", "stopped"])
def test_the_task_takes_the_error_and_the_developer_begins_again(outcome: str | None) -> None:
    house = House()
    house.route(error_message=FIRST)
    if outcome is not None:
        house.developer(outcome)
    house.deliver(amendment())
    task, delegated = house.task(), house.last(TaskDelegated)
    assert (task.state, task.error_message, task.proposal) == ("working", REAL, None)
    assert task.error_signature == signature(REAL).digest
    assert task.target is not None
    assert task.target.job == JobRef(namespace="prod", name="orders.fetch")
    assert (delegated.task.error_message, delegated.task.context) == (REAL, {"tries": 3})
    assert bool(house.names().count("TaskResumed")) is (outcome == "stopped")


def test_the_same_amendment_again_and_one_after_the_end_have_no_effect() -> None:
    house = House()
    house.route(error_message=FIRST)
    house.deliver(amendment())
    delegated = house.names().count("TaskDelegated")
    house.deliver(amendment())
    assert house.names().count("TaskDelegated") == delegated
    house.outcome("succeeded", note="fixed")
    house.deliver(amendment().model_copy(update={"error_message": "something else"}))
    assert house.task().state == "completed"
    assert house.names().count("TaskDelegated") == delegated

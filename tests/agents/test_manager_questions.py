"""The cause of a recovery is asked for once a day, however often the same failure comes and goes."""

from datetime import timedelta
from typing import Any

import pytest
from agents.manager_house import House

ERROR = "TimeoutError: the pump at 10.0.0.7 did not answer"
JOB = {"job": {"namespace": "plant", "name": "pump.read"}}
OTHER_JOB = {"job": {"namespace": "plant", "name": "valve.read"}}


def recovers(house: House, task_id: str, **asked: Any) -> bool:
    """Let a failure come and go; return whether its task asks for the cause."""
    house.route(task_id, **({"error_message": ERROR, "target": JOB} | asked))
    house.developer("stopped", 0.3, task_id=task_id, code="low_confidence")
    house.outcome("succeeded", task_id, evidence="observed", by="lineage")
    asks = [need.kind for need in house.task(task_id).needs] == ["outcome"]
    findings = house.task(task_id).findings
    assert findings is not None
    assert bool(findings.next_steps) == asks
    return asks


@pytest.mark.parametrize("answered", [False, True])
def test_a_failure_that_comes_and_goes_is_asked_about_once_a_day(answered: bool) -> None:
    house = House()
    assert recovers(house, "t1")
    if answered:
        house.now += timedelta(minutes=5)
        house.outcome("succeeded", "t1", fixed_by="something_else", note="Turned the pump off and on")
    house.now += timedelta(hours=1)
    assert not recovers(house, "t2", error_message="TimeoutError: the pump at 10.0.0.8 did not answer")
    house.now += timedelta(hours=22)
    assert not recovers(house, "t3")
    house.now += timedelta(hours=2)
    assert recovers(house, "t4"), "the question is a day old"


@pytest.mark.parametrize("other", [{"target": OTHER_JOB}, {"error_message": "OSError: disk full"}])
def test_another_failure_is_asked_about(other: dict[str, Any]) -> None:
    house = House()
    assert recovers(house, "t1")
    assert recovers(house, "t2", **other)


def test_a_recovery_after_one_that_was_explained_is_asked_about() -> None:
    house = House()
    house.route("t1", error_message=ERROR, target=JOB)
    house.developer("proposed", task_id="t1", text="Look at the pump")
    house.outcome("succeeded", "t1")
    assert recovers(house, "t2")

"""Lineage killed at each of its awaits: what it was about is delivered again, and nothing is there twice."""

import json
from datetime import timedelta
from typing import Any

import pytest
from agents.incident_simulation import run_event
from agents.lineage_house import House
from agents.process_death import ProcessDeath

from counterpoint.lineage.handlers import register
from counterpoint.lineage.incidents.incident import IncidentLimits
from counterpoint.lineage.project_locks import ProjectLocks
from counterpoint.proto.ids import new_id
from counterpoint.proto.lineage import LineageEvent
from counterpoint.proto.messages import Message
from counterpoint.proto.validation import parse

PATIENT = IncidentLimits(incidents_per_hour=100, retry_grace_s=900)


class MortalHouse(House):
    """A house whose lineage dies at the request `dies_at` of a delivery, before memory has it or after."""

    dies_at: int | None = None
    answered = False
    asked = 0

    async def transport(self, subject: str, body: bytes, timeout_s: float) -> bytes:
        self.asked += 1
        dies = self.asked == self.dies_at
        if dies and not self.answered:
            raise ProcessDeath
        reply = await super().transport(subject, body, timeout_s)
        if dies:
            raise ProcessDeath
        return reply

    async def survive(self, message: Message, task_id: str | None = None) -> int:
        """Deliver a message, and again to a new process where this one died; the requests of the first delivery."""
        message_id, self.asked = new_id(), 0
        try:
            await self.deliver(message, message_id, task_id)
        except ProcessDeath:
            self.asked, self.dies_at = 0, None
            self.handlers.clear()
            register(self, self.limits, ProjectLocks())  # type: ignore[arg-type]
            await self.deliver(message, message_id, task_id)
        return self.asked


def fail(second: int, run: str, dag: str = "dag", **more: Any) -> dict[str, Any]:
    return run_event(
        "FAIL", second, job=f"{dag}.a", run_id=run, parent=(dag, f"{dag}-{run}"), error="disk is full", **more
    )


WHOLE = run_event("FAIL", 2, job="dag", run_id="dag-r1", error="task_failure", job_type="DAG")
BELOW = run_event("FAIL", 3, job="other.b", run_id="r2", parent=("other", "o"), error="no file", reads=["t"])
WORKS = run_event("COMPLETE", 9, job="dag.a", run_id="r3", parent=("dag", "dag-r3"), writes=["t"])


def final_state(house: House) -> tuple[Any, ...]:
    """The state at the end: records, messages without their own ids, and timers."""
    sent = [message.model_dump(exclude={"decision_id", "made_at"}) for message in house.sent]
    incidents = [incident.model_dump(exclude={"failures", "affected"}) for incident in house.incidents]
    timers = [(one.due_at, json.dumps(one.data)) for one in house.timers]
    return sorted(map(str, sent)), sorted(map(str, incidents)), sorted(map(str, timers)), len(house.items("runs"))


@pytest.mark.parametrize(
    ("before", "last"),
    [
        ([], fail(1, "r1", writes=["t"])),
        ([WHOLE], fail(1, "r1", writes=["t"])),
        ([BELOW], fail(1, "r1", writes=["t"])),
        ([fail(1, "r1", writes=["t"])], BELOW),
        ([fail(1, "r1", writes=["t"]), BELOW], WORKS),
    ],
    ids=["opening", "opening of a part", "opening of a root", "joining", "closing"],
)
@pytest.mark.parametrize("answered", [False, True], ids=["before memory has it", "after"])
async def test_an_event_during_which_lineage_is_killed_has_one_effect(
    before: list[dict[str, Any]], last: dict[str, Any], answered: bool
) -> None:
    async def lived(dies_at: int | None) -> tuple[MortalHouse, int]:
        house = MortalHouse(limits=PATIENT)
        await house.take(before)
        house.dies_at, house.answered = dies_at, answered
        return house, await house.survive(parse(LineageEvent.TYPE, last))

    unharmed, awaits = await lived(None)
    assert awaits >= 3
    for dies_at in range(1, awaits + 1):
        house, _ = await lived(dies_at)
        assert final_state(house) == final_state(unharmed), dies_at
        assert len({task.task_id for task in house.tasks}) == len(house.tasks)


@pytest.mark.parametrize("state", ["cancelled", "completed", "failed"])
async def test_the_failure_after_the_end_of_a_task_is_one_new_task_wherever_lineage_dies(state: str) -> None:
    async def lived(dies_at: int | None) -> tuple[MortalHouse, int]:
        house = MortalHouse(limits=PATIENT)
        await house.take([fail(1, "r1")])
        house.now += timedelta(seconds=10)
        changed = house.ended(house.tasks[0].task_id or "", state)
        house.dies_at, house.answered = dies_at, bool(dies_at and dies_at % 2)
        awaits = await house.survive(changed, changed.task_id)
        house.dies_at = None
        house.now += timedelta(seconds=10)
        await house.take([fail(20, "r2")])
        return house, awaits

    unharmed, awaits = await lived(None)
    for dies_at in range(1, awaits + 1):
        house, _ = await lived(dies_at)
        first, second = house.tasks
        assert (second.context or {})["previous_incident"] == first.task_id
        assert (second.context or {})["repeats"]["count"] == 2
        assert final_state(house) == final_state(unharmed)

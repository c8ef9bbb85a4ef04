"""Invariants of a task under every event, in any order."""

from datetime import timedelta
from typing import Any

from agents.manager_house import OBJECTION, START, House
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from counterpoint.manager.task_limits import TaskLimits
from counterpoint.manager.workflow import LIVE
from counterpoint.proto.tasks import (
    ENDED,
    TaskWorked,
)

ERRORS = ("Error: no route to 10.0.0.1", "Error: no route to 10.0.0.2", "Error: disk is full", None)
PLACES = {(place.state, place.waiting_for) for place in LIVE}


class Lives(RuleBasedStateMachine):
    """State machine of every event of a task, in any order."""

    @initialize(deadline=st.booleans(), attempts=st.integers(1, 4), shadow=st.booleans(), quiet=st.booleans())
    def begin(self, deadline: bool, attempts: int, shadow: bool, quiet: bool) -> None:
        self.house = House(bounds=TaskLimits(max_attempts=attempts))
        held = {"shadow": shadow} | ({"quiet_s": 7200.0} if quiet else {})
        self.house.put("incident_settings", "project", held)
        self.house.route(error_message=ERRORS[0], **({"deadline": START + timedelta(hours=30)} if deadline else {}))
        self.deadline = deadline
        self.end: tuple[Any, ...] | None = None
        self.stops = 0

    def working(self) -> bool:
        return bool(self.house.work_under_way()) and self.house.task().state not in ENDED

    @precondition(working)
    @rule(outcome=st.sampled_from(["answered", "proposed", "stopped"]), score=st.floats(0, 1), document=st.booleans())
    def developer_works(self, outcome: str, score: float, document: bool) -> None:
        self.house.developer(outcome, score, code="low_confidence" if document else "no_provider")

    @precondition(working)
    @rule(outcome=st.sampled_from(["answered", "proposed"]))
    def the_reviewer_sends_back(self, outcome: str) -> None:
        before = self.house.task()
        self.house.developer(outcome, objections=(OBJECTION,))
        task = self.house.task()
        if before.state == "working" and not before.objections:
            assert (task.state, task.attempt, task.objections) == ("working", before.attempt, (OBJECTION,))
        elif before.state == "working":
            assert task.state != "working"

    @rule(
        outcome=st.sampled_from(["succeeded", "failed", "failed", "partial"]),
        attempt=st.sampled_from([None, None, None, 1, 2, 3, 9]),
        error=st.sampled_from(ERRORS),
        evidence=st.sampled_from(["reported", "observed"]),
        by=st.sampled_from([None, None, "proposal", "something_else", "nothing"]),
        note=st.sampled_from([None, "unlocked the user", "take over please"]),
    )
    def outcome_comes(
        self, outcome: str, attempt: int | None, error: str | None, evidence: str, by: str | None, note: str | None
    ) -> None:
        by = by if (outcome, evidence) == ("succeeded", "reported") else None
        more = {"attempt": attempt, "error_message": error, "evidence": evidence, "fixed_by": by, "note": note}
        self.house.outcome(outcome, **more)

    @rule(instruction=st.sampled_from(["do it so", "do it so", "take over"]))
    def override_comes(self, instruction: str) -> None:
        self.house.override(instruction=instruction)

    @rule(times=st.integers(1, 3))
    def documents_come(self, times: int) -> None:
        for _ in range(times):
            self.house.ingest()

    @rule(seconds=st.sampled_from([0.5, 5, 60, 3600, 25 * 3600]))
    def time_passes(self, seconds: float) -> None:
        self.house.wait(seconds)

    @rule(really=st.integers(0, 9))
    def cancel_comes(self, really: int) -> None:
        if really == 0:
            self.house.cancel()

    @rule()
    def a_result_comes_twice(self) -> None:
        task = self.house.task()
        if task.state != "working" and task.waiting_for != "documents":
            version = self.house.version()
            self.house.deliver(
                TaskWorked(task_id="t1", attempt=task.attempt or 1, outcome="answered", text="x", action_id="a1")
            )
            assert self.house.version() == version

    @invariant()
    def an_end_is_final(self) -> None:
        task = self.house.task()
        if task.state in ENDED:
            end = (task.state, task.ended_at, task.result, task.resolution, len(self.house.names()))
            assert self.end in (None, end)
            self.end = end
            assert not self.house.timers
            assert task.escalation is None
        else:
            assert self.end is None
            assert (task.state, task.waiting_for) in PLACES

    @invariant()
    def nothing_waits_for_nothing(self) -> None:
        task, version = self.house.task(), self.house.version()
        timers = {t.message.timer for t in self.house.timers if t.version == version}  # type: ignore[attr-defined]
        if task.state not in ENDED:
            assert ("deadline" in timers) == self.deadline
        if task.state == "working":
            (under_way,) = self.house.work_under_way()
            assert under_way.message.purpose == "work"  # type: ignore[attr-defined]
            assert under_way.message.attempt == task.attempt  # type: ignore[attr-defined]
        elif task.waiting_for == "outcome":
            assert "outcome" in timers
            assert task.proposal is not None
        elif task.state == "input_required":
            assert task.escalation is not None
            assert task.escalation.needs
            assert all(need.how for need in task.escalation.needs)

    @invariant()
    def a_stop_escalates_once(self) -> None:
        sent = self.house.names()
        entered = sent.count("TaskEscalated")
        left = sent.count("TaskResumed")
        waits = self.house.task().escalation is not None
        ended = self.house.task().state in ENDED
        assert entered - left in ({0, 1} if ended else {int(waits)})
        assert self.house.task().resumes <= self.house.bounds.max_resumes

    @invariant()
    def attempts_are_counted_once(self) -> None:
        numbers = [attempt.attempt for attempt in self.house.attempts()]
        assert len(numbers) == len(set(numbers))
        for number, told in self.house.task().outcomes.items():
            assert int(number) in numbers
            assert told["outcome"] in ("succeeded", "failed", "partial", "superseded")

    @invariant()
    def nothing_but_a_proposal_or_a_report_is_credited(self) -> None:
        for attempt in self.house.attempts():
            if attempt.outcome == "succeeded":
                assert attempt.fixed_by in (None, "proposal")
                assert attempt.evidence == "reported" or attempt.tried.startswith(("text of attempt", "do it so"))
            assert (attempt.outcome == "superseded") == (attempt.fixed_by in ("something_else", "nothing"))

    @invariant()
    def the_line_hangs_together(self) -> None:
        line = self.house.line()
        known = {action.action_id for action in line} | {"a1"}
        for action in line:
            assert set(action.after) <= known
            assert action.after or action.agent != "manager"
        assert self.house.task().last_action_id in known


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)

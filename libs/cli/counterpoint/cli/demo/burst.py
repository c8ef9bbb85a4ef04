"""The seventh part of the demo: a failure in a project without documents, whose flows arrive all at once."""

from dataclasses import dataclass

from counterpoint.card.history import RECOGNISED
from counterpoint.cli.demo.incident import UndocumentedFailure
from counterpoint.cli.demo.stage import DemoStage
from counterpoint.cli.demo.task import holds, is_ended, is_stopped, likelihood, proposed, state
from counterpoint.proto.findings import Findings
from counterpoint.proto.tasks import Task


@dataclass(frozen=True)
class FailureBurst:
    """A failure in its own project: reported, repaired, recognised, and distinguished from another of the same job."""

    undocumented: UndocumentedFailure
    stage: DemoStage

    def play(self) -> None:
        """Play the part."""
        self.stage.transcript.begin("7. A burst of events, without any documents")
        first = self._fails()
        self._reported(first)
        self._repaired(first)
        again = self._fails_again(first)
        self.stage.report(again, again.attempt or 1, {"outcome": "succeeded"})
        self.stage.wait_until(again, "the report to be recorded", is_ended)
        self._fails_otherwise()
        tasks = self.stage.tasks()
        self.stage.transcript.check("each failed flow is one task", len(tasks) == 3, [task.title for task in tasks])

    def _fails(self) -> Task:
        self.stage.send_at_once("the failure", self.undocumented.failure)
        task = self.stage.wait_for_new_task(set(), "the failure to be investigated", is_stopped)
        self.stage.transcript.card("burst", task)
        job = task.target and task.target.job
        self.stage.transcript.check(
            "the task is about the failed part", job and job.name == self.undocumented.job, job and job.name
        )
        self.stage.transcript.check(
            "the task has the error of the part, not that of the DAG run",
            self.undocumented.error in (task.error_message or ""),
            task.error_message,
        )
        self.stage.transcript.check(
            "the task escalates without a proposal, because nothing is known",
            task.waiting_for == "documents" and task.escalation and not task.proposal,
            state(task),
        )
        return task

    def _reported(self, first: Task) -> None:
        report = self.undocumented.report
        self.stage.transcript.say(f"the person on call reports: {report.outcome} by {report.by}, {report.note}")
        self.stage.report(first, (first.attempt or 0) + 1, report.model_dump(exclude_none=True))
        task = self.stage.wait_until(first, "the report to be recorded", is_ended)
        kept = next(reversed(task.outcomes.values()), {})
        self.stage.transcript.check(
            "the task ends, and the fix is recorded as reported by a person",
            task.state == "completed" and kept.get("evidence") == "reported" and kept.get("note") == report.note,
            state(task) | {"outcomes": task.outcomes},
        )

    def _repaired(self, first: Task) -> None:
        self.stage.send_at_once("the repaired run", self.undocumented.repaired)
        run = self.stage.last_run(first.target.job) if first.target and first.target.job else None
        self.stage.transcript.check(
            "the job runs again, and no new task is created",
            run == "COMPLETED" and self.stage.ids() == {first.task_id},
            [run, *self.stage.ids()],
        )

    def _fails_again(self, first: Task) -> Task:
        known = self.stage.ids()
        self.stage.send_at_once("the same failure on another night", self.undocumented.again)
        task = self.stage.wait_for_new_task(known, "the failure has become a task with a proposal", proposed(1))
        self.stage.transcript.card("burst again", task)
        check, fix = self.stage.transcript.check, self.undocumented.report.note or ""
        previous = (task.context or {}).get("previous_incident")
        check("it is a new incident that names the previous one", previous == first.task_id, previous)
        check(
            "the numbers differ, and it is recognised as the same failure",
            task.error_message != first.error_message and likelihood(task) >= RECOGNISED,
            [first.error_message, task.error_message, likelihood(task)],
        )
        found = task.findings or Findings()
        quotes = [line for line in (task.proposal or "").splitlines() if line.startswith(">")]
        check("the earlier fix is proposed first", quotes and holds(quotes[0], fix), task.proposal)
        cited = [one.store for one in found.citations]
        check("the proposal cites only the earlier attempt", set(cited) == {"attempts"}, cited)
        check("the caveats say that there is little evidence", found.caveats, found.caveats)
        return task

    def _fails_otherwise(self) -> None:
        known = self.stage.ids()
        self.stage.send_at_once("another failure of the same job", self.undocumented.near_miss)
        task = self.stage.wait_for_new_task(known, "the other failure to be investigated", is_stopped)
        self.stage.transcript.card("near miss", task)
        self.stage.transcript.check(
            "it is not recognised as the known failure; at most it is offered as similar",
            not task.proposal or likelihood(task) < RECOGNISED,
            [task.error_message, task.proposal, likelihood(task)],
        )

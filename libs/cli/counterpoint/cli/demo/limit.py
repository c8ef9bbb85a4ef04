"""Part eight of the demo: a model call stops at a spending limit, and a person approves it."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from counterpoint.cli.demo.incident import LimitedQuestion
from counterpoint.cli.demo.provider import SimulatedProvider
from counterpoint.cli.demo.stage import DemoStage
from counterpoint.cli.demo.task import is_ended, state
from counterpoint.cli.errors import NotReachable
from counterpoint.proto.tasks import Task


@dataclass(frozen=True)
class LimitStory:
    """A question whose model call would exceed the limit of its project, asked twice."""

    limited: LimitedQuestion
    stage: DemoStage
    provider: SimulatedProvider

    def play(self) -> None:
        """Play the part."""
        transcript = self.stage.transcript
        transcript.begin("8. A limit that stops, and an approval")
        transcript.say("a second stack, with a simulated provider: no language model, one fixed text for every call")
        self.stage.ingest("the documents of the team", self.limited.knowledge)
        limit = {"scope": "project", "period": "day", "usd": str(self.limited.usd)}
        self.stage.cast.administrator.put("/v1/limits", limit, project=self.stage.project)
        transcript.say(f"limit of the project: {self.limited.usd} USD per day")
        self._approved()
        self._rejected()

    def _approved(self) -> None:
        transcript = self.stage.transcript
        task, approval = self._stopped()
        self._decide(approval, {"decision": "approved"})
        task = self.stage.wait_until(task, "the approved task to end", is_ended)
        transcript.show(f"\n{task.result}\n")
        transcript.check(
            "approved: the model was called, and its answer cites its source",
            task.state == "completed" and self.limited.says in (task.result or "") and self.provider.requests > 0,
            state(task),
        )
        sums = self.stage.cast.person.get("/v1/costs", project=self.stage.project, by="task")
        spent = [Decimal(line["usd"]) for line in sums["lines"] if line["key"] == task.task_id]
        transcript.say(f"the task has cost {', '.join(f'{usd:f}' for usd in spent)} USD")
        transcript.check("the costs have the price of the call", spent and spent[0] > 0, sums["lines"])

    def _rejected(self) -> None:
        transcript = self.stage.transcript
        limit = {"scope": "project", "period": "day", "usd": str(self.limited.usd / 2)}
        self.stage.cast.administrator.put("/v1/limits", limit, project=self.stage.project)
        transcript.say(f"limit of the project: {limit['usd']} USD per day")
        calls = self.provider.requests
        task, approval = self._stopped()
        self._decide(approval, {"decision": "rejected", "reason": "quotes are enough"})
        task = self.stage.wait_until(task, "the rejected task to end", is_ended)
        transcript.show(f"\n{task.result}\n")
        transcript.check(
            "rejected: the question is answered by quotes, without a call",
            task.state == "completed" and task.result and self.provider.requests == calls,
            state(task),
        )

    def _stopped(self) -> tuple[Task, dict[str, Any]]:
        """Ask, and return the task that waits and its approval."""
        transcript, calls = self.stage.transcript, self.provider.requests
        transcript.say(f"asked: {self.limited.question}")
        task = self.stage.submit({"kind": "question", "description": self.limited.question})
        task = self.stage.wait_until(
            task, "the task to wait for an approval", lambda now: now.waiting_for == "approval" or is_ended(now)
        )
        transcript.check(
            "the call is over the limit: nothing was sent, and a person is asked",
            task.waiting_for == "approval" and self.provider.requests == calls,
            state(task),
        )
        where = {"project": self.stage.project, "task_id": task.task_id}
        listed: list[dict[str, Any]] = self.stage.cast.person.get("/v1/approvals", **where)["items"]
        if not listed:
            raise NotReachable(f"task {task.task_id} waits for no approval: {state(task)}")
        (approval,) = listed
        transcript.show(f"\n{approval['artifact']}\n")
        return task, approval

    def _decide(self, approval: dict[str, Any], decision: dict[str, str]) -> None:
        body = decision | {"artifact_sha256": approval["artifact_sha256"]}
        self.stage.cast.person.post(f"/v1/approvals/{approval['approval_id']}", body, project=self.stage.project)
        self.stage.transcript.say(f"on-call: {decision['decision']}")

"""Replay of many tasks: of all ended ones, oldest first, perhaps by another model under one budget."""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from counterpoint.cli.errors import ApiError
from counterpoint.cli.replay.other_model import CallCosts, ModelReplay, sum_of_costs
from counterpoint.cli.replay.processes import ReplayProcesses
from counterpoint.cli.replay.task import NoModelCalled, TaskReport, replay_task
from counterpoint.proto.messages import Shape
from counterpoint.proto.replays import sandbox_project
from counterpoint.proto.subjects import DEFAULT_PROJECT
from counterpoint.proto.tasks import ENDED, Budget

if TYPE_CHECKING:
    from counterpoint.cli.api import ApiClient

_AWAY = "unavailable"
_AWAY_TIMES = 3
"""Tasks in a row whose calls find the provider away, after which a run stops."""
_OF_ALL = frozenset({"budget", "gateway", "model", "no_model", "role", "unauthenticated"})
"""Refusals of a call that the calls for the other tasks would meet too."""


class RegressionReport(Shape):
    """A run of many tasks against another model.

    `tasks` have ended; of them, `without_model` called no model, `not_run` are left because the run `stopped`, and
    `verdicts` are those of the `replayed` ones.
    """

    model: str
    sandbox: str
    budget: Budget
    tasks: int
    replayed: int
    verdicts: Mapping[str, int]
    without_model: int
    not_run: int
    recorded_cost: CallCosts
    replayed_cost: CallCosts
    stopped: str | None = None


@dataclass(frozen=True, slots=True)
class OtherModelRun:
    """A model, what all its calls may cost, and the name of a run whose calls are made anew."""

    model: str
    budget: Budget
    run: str = ""


@dataclass(slots=True)
class ManyReplays:
    """Replays the ended tasks of a project that were submitted since a time; `progress` is told of each.

    Raises `CommandError` if the decisions cannot run.
    """

    api: "ApiClient"
    project: str | None
    processes: ReplayProcesses
    progress: Callable[[str], None]
    since: datetime | None = None
    without: str | None = None
    reports: list[TaskReport] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)

    def run(self) -> None:
        """Replay every task as it was."""
        for task_id in self._tasks():
            self._one(task_id, None)

    def regression(self, other: OtherModelRun) -> RegressionReport:
        """Replay every task that called a model by another one, until their common budget ends."""
        tasks = self._tasks()
        named = self.since.isoformat() if self.since else "all"
        regression = hashlib.sha256(named.encode()).hexdigest()[:32]
        stopped, without_model, away, done = None, 0, 0, 0
        for task_id in tasks:
            model = ModelReplay(
                self.api, task_id, self.project, other.model, other.budget, other.run, regression=regression
            )
            try:
                report = self._one(task_id, model)
            except NoModelCalled:
                without_model += 1
                report = None
            done += 1
            self._tell(done, len(tasks), task_id, report)
            away = away + 1 if model.refusal == _AWAY else 0
            if model.refusal in _OF_ALL or away == _AWAY_TIMES:
                stopped = next((each.stopped for each in model.report.deliveries if each.stopped), model.refusal)
                break
        models = [each.model for each in self.reports if each.model]
        return RegressionReport(
            model=other.model,
            sandbox=sandbox_project(self.project or DEFAULT_PROJECT),
            budget=other.budget,
            tasks=len(tasks),
            replayed=len(self.reports),
            verdicts=Counter(each.verdict for each in self.reports),
            without_model=without_model,
            not_run=len(tasks) - done,
            recorded_cost=sum_of_costs(each.recorded_cost for each in models),
            replayed_cost=sum_of_costs(each.replayed_cost for each in models),
            stopped=stopped,
        )

    def _one(self, task_id: str, model: ModelReplay | None) -> TaskReport | None:
        try:
            report = replay_task(self.api, task_id, self.project, self.processes, without=self.without, model=model)
        except ApiError as error:
            self.failed.append({"task_id": task_id, "error": str(error)})
            return None
        self.reports.append(report)
        return report

    def _tell(self, done: int, of: int, task_id: str, report: TaskReport | None) -> None:
        paid = sum_of_costs(each.model.replayed_cost for each in self.reports if each.model).paid_usd
        verdict = report.verdict if report else "not replayed"
        self.progress(f"{done} of {of}: {task_id} {verdict}, {paid:f} USD paid")

    def _tasks(self) -> Sequence[str]:
        """Return the ids of the ended tasks, oldest first."""
        ended = [
            each
            for state in sorted(ENDED)
            for each in self.api.pages("/v1/tasks", 10**9, state=state, project=self.project)["items"]
        ]
        submitted = {each["task_id"]: datetime.fromisoformat(each["submitted_at"]) for each in ended}
        ordered = sorted(submitted.items(), key=lambda each: (each[1], each[0]))
        return [task_id for task_id, at in ordered if self.since is None or at >= self.since]

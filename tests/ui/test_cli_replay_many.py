"""Regression runs of many tasks: which tasks are run, when a run stops, and what its report says."""

from decimal import Decimal
from typing import Any

import pytest

from counterpoint.cli.errors import ApiError
from counterpoint.cli.replay import many
from counterpoint.cli.replay.many import ManyReplays, OtherModelRun, RegressionReport
from counterpoint.cli.replay.markdown import regression_report
from counterpoint.cli.replay.other_model import CallCosts, ModelReplay, OtherModel
from counterpoint.cli.replay.task import NoModelCalled, TaskReport
from counterpoint.proto.tasks import Budget

BUDGET = Budget(usd=Decimal(5))


class TaskList:
    """The list of ended tasks: `t-0` was submitted first, and the states are mixed."""

    def __init__(self, count: int) -> None:
        self._count = count

    def pages(self, path: str, limit: int, *, state: str, project: str | None) -> dict[str, Any]:
        states = ("completed", "failed", "cancelled")
        return {
            "items": [
                {"task_id": f"t-{n}", "submitted_at": f"2026-03-02T03:00:{n:02}Z"}
                for n in reversed(range(self._count))
                if states[n % 3] == state
            ]
        }


def played(monkeypatch: pytest.MonkeyPatch, *outcomes: str) -> tuple[RegressionReport, ManyReplays, list[str]]:
    """A run over tasks with these outcomes: a verdict, the code of a refused call, `none` or `error`."""
    told: list[str] = []

    def replay_task(*_: Any, model: ModelReplay, **__: Any) -> TaskReport:
        outcome = outcomes[len(told)]
        if outcome == "none":
            raise NoModelCalled("no step called a model")
        if outcome == "error":
            raise ApiError(404, {"code": "not_found", "detail": "is gone"})
        verdict = outcome if outcome in ("same", "different") else "stopped"
        model.refusal = None if verdict == outcome else outcome
        cost = CallCosts(calls=1, usd=Decimal("0.01"), tokens=25, seconds=0.5)
        stopped = f"{outcome} is spent" if model.refusal else None
        model._deliveries.append(
            OtherModel(service="developer", leaf=1, recorded_models=("a",), recorded_cost=cost, replayed_cost=cost,
                       stopped=stopped)
        )  # fmt: skip
        return TaskReport(
            task_id=f"t-{len(told)}", project="p", verdict=verdict, contexts=1, model=model.report, steps=()
        )

    monkeypatch.setattr(many, "replay_task", replay_task)
    tasks = ManyReplays(TaskList(len(outcomes)), "p", None, told.append)  # type: ignore[arg-type]
    return tasks.regression(OtherModelRun("openai/x", BUDGET)), tasks, told


def test_a_run_counts_verdicts_costs_and_tasks_without_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    report, tasks, told = played(monkeypatch, "same", "none", "different", "error", "same")
    assert (report.tasks, report.replayed, report.without_model, report.not_run) == (5, 3, 1, 0)
    assert dict(report.verdicts) == {"same": 2, "different": 1}
    assert (report.replayed_cost.calls, report.replayed_cost.usd, report.replayed_cost.seconds) == (
        3,
        Decimal("0.03"),
        1.5,
    )
    assert told[0] == "1 of 5: t-0 same, 0.01 USD paid"
    shown = regression_report(report, tasks.reports, tasks.failed)
    assert "2 of 3 tasks decided the same." in shown
    assert "| seconds | 1.5 | 1.5 |" in shown
    assert "failed: t-3: " in shown


@pytest.mark.parametrize(
    ("outcomes", "run"),
    [
        (("same", "budget", "same", "same"), 2),
        (("model", "same"), 1),
        (("label", "same"), 2),
        (("unavailable", "unavailable", "same", "unavailable", "unavailable", "unavailable", "same"), 6),
    ],
)
def test_a_run_stops_when_the_calls_for_all_others_would_be_refused_too(
    monkeypatch: pytest.MonkeyPatch, outcomes: tuple[str, ...], run: int
) -> None:
    report, tasks, told = played(monkeypatch, *outcomes)
    assert (len(told), report.not_run) == (run, len(outcomes) - run)
    if report.not_run:
        assert report.stopped == f"{outcomes[run - 1]} is spent"
        shown = regression_report(report, tasks.reports, tasks.failed)
        assert f"{report.not_run} task" in shown
        assert "run it again to go on" in shown


def test_a_report_without_replays_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    report, _, told = played(monkeypatch)
    assert (regression_report(report, (), ()).splitlines()[2], told) == ("There is no ended task to replay.", [])
    report, _, _ = played(monkeypatch, "none", "none")
    assert "None of 2 ended tasks called a model." in regression_report(report, (), ())

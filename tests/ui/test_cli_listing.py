"""Lists of tasks: in the order of what they show, and what waits with what matters first."""

from typing import Any

import pytest
from typer.testing import CliRunner
from ui.cli_data import incident
from ui.cli_server import playing

from counterpoint.cli.main import app
from counterpoint.cli.render.listing import by_submission, by_urgency, title

QUESTION = {"kind": "question", "description": "Who owns it?", "title": None, "error_message": None, "findings": None}


def waiting_task(task_id: str, **more: Any) -> dict[str, Any]:
    return incident(task_id=task_id, escalation={"to": "human", "code": "low_confidence", "needs": []}) | more


TASKS = [
    waiting_task("ask-new", submitted_at="2026-11-17T09:00:00Z", **QUESTION),
    waiting_task("ask-urgent", submitted_at="2026-11-17T08:30:00Z", priority="urgent", **QUESTION),
    waiting_task("old", submitted_at="2026-11-17T05:00:00Z"),
    waiting_task("alone", submitted_at="2026-11-17T08:00:00Z", findings=None),
    waiting_task("urgent", submitted_at="2026-11-17T04:00:00Z", priority="urgent", findings=None),
    waiting_task("plan", submitted_at="2026-11-17T07:00:00Z", kind="plan", findings=None),
]


def ids(tasks: list[dict[str, Any]]) -> list[str]:
    return [task["task_id"] for task in tasks]


def test_incidents_stand_above_questions_the_urgent_and_those_that_hit_most_first() -> None:
    assert ids(by_urgency(TASKS)) == ["urgent", "old", "alone", "plan", "ask-urgent", "ask-new"]


def test_downstream_claimed_by_a_caller_raises_no_task() -> None:
    claim = {"kind": "job", "namespace": "n", "name": "x", "hops": 1, "edge": "data", "claimed_by": "caller"}
    boast = waiting_task("boast", submitted_at="2026-11-17T01:00:00Z", findings={"downstream": [claim]})
    assert ids(by_urgency([boast, *TASKS]))[-4:-3] == ["boast"]


def test_tasks_are_sorted_by_the_time_that_is_shown() -> None:
    assert ids(by_submission(TASKS)) == ["ask-new", "ask-urgent", "alone", "plan", "old", "urgent"]


def test_a_task_without_a_title_is_called_by_its_error() -> None:
    task = waiting_task(
        "t", title=None, error_message="ValueError: it broke", target={"job": {"namespace": "n", "name": "j"}}
    )
    assert title(task) == "j failed: ValueError: it broke"


@pytest.mark.parametrize(
    ("command", "first", "last"), [("tasks", "ask-new", "urgent"), ("escalations", "urgent", "ask-new")]
)
def test_the_commands_print_that_order(command: str, first: str, last: str) -> None:
    with playing() as api:
        api.on(f"GET /v1/{command}", (200, {"items": TASKS, "next_cursor": None}))
        shown = CliRunner().invoke(app, [command, "-p", "orders", *api.options()])
    assert shown.exit_code == 0, shown.output
    lines = [line for line in shown.stdout.splitlines() if any(f"{one['task_id']} " in f"{line} " for one in TASKS)]
    assert first in lines[0]
    assert last in lines[-1]


@pytest.mark.parametrize("command", ["tasks", "escalations"])
def test_a_list_that_is_cut_says_so(command: str) -> None:
    with playing() as api:
        api.on(f"GET /v1/{command}", (200, {"items": TASKS, "next_cursor": "17"}))
        options = ["-p", "orders", "-n", "6" if command == "tasks" else "2", *api.options()]
        shown = CliRunner().invoke(app, [command, *options])
        whole = CliRunner().invoke(app, [command, "--json", *options])
    assert "there are more: raise --limit" in shown.stderr
    assert ("and at least " in shown.stdout) == (command == "escalations")
    assert "more" not in whole.stderr

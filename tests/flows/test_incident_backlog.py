"""Incidents on a running house: a backlog posted at once, what follows from a root, and the end of a task."""

import random
from typing import Any

import httpx
import pytest
from flows.incident_front import Front, event, live

from counterpoint.card.content import card
from counterpoint.card.render import text
from counterpoint.local.stack import Stack
from counterpoint.proto.tasks import Task

ERRORS = ("DiskFull: no space left on device", "UndefinedTable: relation raw.orders does not exist")


@pytest.fixture
async def front(stack: Stack, project: str) -> Any:
    async with httpx.AsyncClient(timeout=30) as client:
        yield Front(stack, project, client)


@pytest.mark.slow
async def test_fifty_failed_flows_posted_at_once_are_fifty_right_tasks(front: Front) -> None:
    events = []
    for at in range(50):
        dag, flow, error = f"dag{at}", f"flow-{at}", f"{ERRORS[at % 2]} {'xyzw'[at % 4] * 3}"
        task = {"parent": (dag, flow), "task": True, "writes": [f"t{at}"]}
        events.append(event("START", at, f"{dag}.load", f"{flow}-1", **task))
        events.append(event("FAIL", at + 1, f"{dag}.load", f"{flow}-1", error=error, **task))
        events.append(event("FAIL", at + 2, dag, flow, error="task_failure"))
    random.Random(1).shuffle(events)
    await front.post(events)
    tasks = await front.until(lambda found: len(found) >= 50)
    assert {task["target"]["job"]["name"] for task in tasks} == {f"dag{at}.load" for at in range(50)}
    assert all("task_failure" not in task["error_message"] for task in tasks)
    assert all(len(task["title"]) <= 80 for task in tasks)


async def test_a_root_with_forty_that_follow_is_one_task_that_names_it(front: Front) -> None:
    events = [event("FAIL", 1, "d0.root", "r0", parent=("d0", "f0"), task=True, writes=["t0"], error=ERRORS[0])]
    for at in range(1, 41):
        more = {"parent": (f"d{at}", f"f{at}"), "task": True, "reads": [f"t{at // 2}"], "writes": [f"t{at}"]}
        events.append(event("START", at + 5, f"d{at}.use", f"r{at}", **more))
        events.append(event("FAIL", at + 6, f"d{at}.use", f"r{at}", error=f"FileNotFound: input {at}", **more))
        events.append(event("FAIL", at + 7, f"d{at}", f"f{at}", error="task_failure"))
    random.Random(2).shuffle(events)
    await front.post(events)

    def right(found: list[dict[str, Any]]) -> bool:
        standing = live(found)
        return len(standing) == 1 and standing[0]["context"].get("affected_count") == 40

    (task,) = live(await front.until(right))
    assert task["target"]["job"]["name"] == "d0.root"
    assert task["error_message"] == ERRORS[0]
    assert len(task["context"]["affected"]) == 40


async def test_a_failure_after_a_reported_success_is_a_new_task_that_names_the_last(front: Front) -> None:
    more = {"parent": ("dag", "flow"), "task": True}
    await front.post([event("FAIL", 1, "dag.load", "r-1", error=ERRORS[0], **more)])
    (first,) = await front.until(lambda found: len(live(found)) == 1)
    await front.until(lambda found: found[0]["state"] == "input_required")
    await front.report(first["task_id"], "Freed the disk.")
    await front.until(lambda found: found[0]["state"] == "completed")
    later = more | {"parent": ("dag", "flow-2")}
    await front.post([event("FAIL", 9, "dag.load", "r-2", error=ERRORS[0], **later)])
    (second,) = live(await front.until(lambda found: len(live(found)) == 1))
    assert second["task_id"] != first["task_id"]
    assert second["context"]["previous_incident"] == first["task_id"]
    assert second["context"]["repeats"]["count"] == 2


async def test_the_card_lists_the_changes_since_the_last_success(front: Front) -> None:
    def run(kind: str, second: int, number: int, version: str, **more: Any) -> dict[str, Any]:
        raw = event(kind, second, "etl.load", f"e-{number}", parent=("etl", f"f-{number}"), reads=["orders"], **more)
        location = {"type": "git", "repoUrl": "https://github.com/acme/flows", "version": version, "url": "https://x"}
        raw["job"]["facets"]["sourceCodeLocation"] = location
        raw["run"]["facets"]["spark_properties"] = {"properties": {"spark.executor.memory": f"{8 // number}g"}}
        return raw

    history = [
        event("COMPLETE", 0, "fill", "fill-1", writes=["orders"]),
        run("START", 10, 1, "a1"),
        run("COMPLETE", 20, 1, "a1"),
        run("START", 30, 2, "b2"),
        run("FAIL", 40, 2, "b2", error=ERRORS[0], task=True),
    ]
    for raw in history:
        await front.post([raw])
    (task,) = live(await front.until(lambda found: len(live(found)) == 1))
    shown = text(card(Task.model_validate(await front.task(task["task_id"]))))
    section = " ".join(shown[shown.index("\nchanged ") :].split())
    assert "a1 → b2" in section
    assert "https://github.com/acme/flows/compare/a1...b2" in section
    assert "8g → 4g" in section
    assert "orders not written since" in section


async def test_after_a_cancelled_task_the_next_failure_is_a_new_one_that_names_it(front: Front) -> None:
    more = {"parent": ("dag", "flow"), "task": True}
    await front.post([event("FAIL", 1, "dag.load", "r-1", error=ERRORS[0], **more)])
    (first,) = await front.until(lambda found: len(live(found)) == 1)
    await front.cancel(first["task_id"])
    await front.until(lambda found: found[0]["state"] == "cancelled")
    await front.post([event("FAIL", 9, "dag.load", "r-2", error=ERRORS[0], parent=("dag", "flow-2"), task=True)])
    (second,) = live(await front.until(lambda found: len(live(found)) == 1))
    assert second["context"]["previous_incident"] == first["task_id"]
    assert second["context"]["repeats"]["count"] == 2

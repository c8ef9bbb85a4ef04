"""Changes since the last success, as the task of an incident tells them, through the handlers."""

from datetime import timedelta
from typing import Any

from agents.incident_simulation import run_event
from agents.lineage_house import House

from counterpoint.lineage.incidents.incident import IncidentLimits

LIMITS = IncidentLimits(incidents_per_hour=100, retry_grace_s=0)
HOUR = 3600


def source(kind: str, second: int, table: str, **more: Any) -> dict[str, Any]:
    return run_event(kind, second, job=f"fill_{table}", run_id=f"fill-{table}-{second}", writes=[table], **more)


def load(kind: str, second: int, day: int, version: str, **more: Any) -> dict[str, Any]:
    event = run_event(kind, second, job="load", run_id=f"load-{day}", reads=["orders", "prices", "rates"], **more)
    location = {"type": "git", "repoUrl": "https://github.com/acme/flows", "version": version, "url": "https://x/load"}
    event["job"]["facets"] = {"sourceCodeLocation": location}
    return event


async def worked_once(house: House) -> None:
    for table in ("orders", "prices", "rates"):
        await house.take([source("START", 0, table), source("COMPLETE", 10, table)])
    await house.take([load("START", 100, 1, "a1"), load("COMPLETE", 200, 1, "a1")])


async def fails(house: House) -> list[dict[str, str]]:
    """The changes that a failure on the second day comes with."""
    await house.take([load("START", 26 * HOUR, 2, "b2"), load("FAIL", 26 * HOUR + 90, 2, "b2", error="no rows")])
    context = next(task for task in house.tasks if task.target and task.target.run_id == "load-2").context or {}
    rows: list[dict[str, str]] = context.get("changed", [])
    return rows


async def changed(*between: dict[str, Any]) -> list[dict[str, str]]:
    """The same after these events."""
    house = House(limits=LIMITS)
    await worked_once(house)
    await house.take(between)
    return await fails(house)


async def test_inputs_that_were_not_written_again_are_told_with_their_last_moment() -> None:
    fresh = [source("START", 20 * HOUR, "prices"), source("COMPLETE", 20 * HOUR + 9, "prices")]
    fresh += [source("START", 21 * HOUR, "rates"), source("COMPLETE", 21 * HOUR + 9, "rates")]
    rows = {row["what"]: row for row in await changed(*fresh)}
    assert rows["freshness"] == {
        "what": "freshness",
        "name": "orders",
        "after": "not written since 2026-11-20 18:00:10 UTC",
    }
    assert rows["code"]["url"] == "https://github.com/acme/flows/compare/a1...b2"


async def test_inputs_that_are_written_as_ever_have_not_changed() -> None:
    again = [
        source(kind, 20 * HOUR + at, table)
        for table in ("orders", "prices", "rates")
        for at, kind in ((0, "START"), (9, "COMPLETE"))
    ]
    assert {row["what"] for row in await changed(*again)} == {"code"}


async def test_an_upstream_job_that_has_not_worked_since_it_failed_is_told() -> None:
    house = House(limits=LIMITS)
    await worked_once(house)
    await house.take([source("FAIL", 22 * HOUR, "orders", error="source is away")])
    (above,) = house.tasks
    house.now += timedelta(hours=23)
    ended = house.ended(above.task_id or "", "completed")
    await house.deliver(ended, task_id=ended.task_id)
    rows = await fails(house)
    upstream = {"what": "upstream", "name": "fill_orders", "after": "failed at 2026-11-21 16:00:00 UTC"}
    assert upstream in rows
    assert rows.index(upstream) > next(at for at, row in enumerate(rows) if row["what"] == "freshness")


async def test_an_input_of_the_same_flow_is_not_called_old_though_the_event_of_its_run_comes_last() -> None:
    house = House(limits=LIMITS)
    for day, flow in ((0, "f1"), (24 * HOUR, "f2")):
        part: dict[str, Any] = {"parent": ("flow", flow)}
        fetched = [
            run_event(kind, day + at, job="flow.fetch", run_id=f"fetch-{flow}", writes=["raw"], **part)
            for at, kind in ((1, "START"), (9, "COMPLETE"))
        ]
        aligned = [
            run_event(kind, day + at, job="flow.align", run_id=f"align-{flow}", reads=["raw"], error=error, **part)
            for at, kind, error in ((10, "START", None), (60, *(("FAIL", "no memory") if day else ("COMPLETE", None))))
        ]
        await house.take([*aligned, *fetched] if day else [*fetched, *aligned])
    (task,) = house.tasks
    assert "freshness" not in [row["what"] for row in (task.context or {}).get("changed", ())]

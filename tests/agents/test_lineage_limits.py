"""Limits of what events of others can do to the records of lineage: wrong clocks, and sizes that grow."""

from datetime import timedelta
from typing import Any

import pytest
from agents.incident_simulation import run_event
from agents.lineage_house import NOW, House
from pydantic_core import to_json

from counterpoint.graph.names import NAME_LIMIT_CHARS
from counterpoint.lineage.incidents.failures import FailedRun
from counterpoint.lineage.incidents.incident import (
    IncidentLedger,
    IncidentLimits,
    IncidentSpan,
    IncidentState,
)
from counterpoint.lineage.incidents.matching import IncidentChanges, IncidentSnapshot, match_incidents
from counterpoint.lineage.incidents.task_messages import live_facts
from counterpoint.lineage.openlineage.parser import parse_event
from counterpoint.lineage.records import SET_LIMIT_CHARS, RunRecord
from counterpoint.proto.messages import BODY_LIMIT_BYTES

LIMITS = IncidentLimits(incidents_per_hour=100, retry_grace_s=0)
AHEAD_S = 6 * 3600
LONG = "x" * (NAME_LIMIT_CHARS - 10)


def failed(number: int, job: str, **more: Any) -> FailedRun:
    return FailedRun(
        job=f"job:{LONG}/{job}{LONG}",
        run_id=f"r{number}",
        at=NOW + timedelta(seconds=number),
        flow=f"r{number}",
        signature="s",
        waited=True,
        log_url=f"https://airflow/{'y' * 1900}",
        **more,
    )


def matched(fresh: list[FailedRun], snapshot: IncidentSnapshot) -> IncidentChanges:
    return match_incidents(
        snapshot, fresh, lambda above, _: "root" in above, LIMITS, project="orders", now=NOW + timedelta(hours=1)
    )


async def ended_and_failed_again(first: str | int) -> House:
    """A failure at `first`, whose task is cancelled, and one of the same job an hour later."""
    house = House(limits=LIMITS, is_ahead=True)
    event = run_event("FAIL", 0 if isinstance(first, str) else first, job="load", run_id="r1", error="no rows")
    await house.take([event | ({"eventTime": first} if isinstance(first, str) else {})])
    (incident,) = house.incidents
    await house.deliver(house.ended(incident.incident_id, "cancelled"))
    await house.wait(3600)
    await house.take([run_event("FAIL", 3600, job="load", run_id="r2", error="no rows")])
    return house


@pytest.mark.parametrize("first", [0, AHEAD_S, "2099-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"])
async def test_a_failure_opens_an_incident_after_one_from_a_clock_that_was_ahead_has_ended(first: str | int) -> None:
    house = await ended_and_failed_again(first)
    assert [task.target.run_id for task in house.tasks if task.target] == ["r1", "r2"]


async def test_a_success_resolves_a_failure_from_a_clock_that_was_ahead() -> None:
    house = House(limits=LIMITS, is_ahead=True)
    await house.take([run_event("FAIL", AHEAD_S, job="load", run_id="r1", error="no rows")])
    await house.wait(3600)
    await house.take([run_event("COMPLETE", 3600, job="load", run_id="r2")])
    assert [outcome.outcome for outcome in house.outcomes] == ["succeeded"]


async def test_an_event_of_the_first_millennium_is_older_than_one_of_today() -> None:
    house = House(limits=LIMITS)
    old = run_event("COMPLETE", 0, job="load", run_id="r1") | {"eventTime": "0999-01-01T00:00:00Z"}
    await house.take([old, run_event("COMPLETE", 0, job="load", run_id="r2")])
    (job,) = (item.body for item in house.items("jobs"))
    assert job["last_success"]["run_id"] == "r2"


async def test_a_run_that_reads_ever_new_data_sets_keeps_as_many_as_a_record_holds() -> None:
    house = House(limits=LIMITS)
    for at in range(4):
        reads = [f"part-{at}-{n}-{'x' * 400}" for n in range(300)]
        await house.take([run_event("RUNNING", at, job="stream", run_id="r", reads=reads)])
    await house.take([run_event("FAIL", 9, job="stream", run_id="r", error="no rows")])
    (run,) = (RunRecord.model_validate(item.body) for item in house.items("runs"))
    assert SET_LIMIT_CHARS - 500 < sum(map(len, run.inputs)) <= SET_LIMIT_CHARS
    assert len(house.tasks) == 1


def test_owners_and_urls_that_are_no_names_are_left_out() -> None:
    event = run_event("FAIL", 0, job="load", run_id="r", error="no rows")
    event["job"]["facets"] = {"ownership": {"owners": [{"name": "team"}, {"name": "y" * 50_000}]}}
    event["run"]["facets"]["airflow"] = {"taskInstance": {"log_url": "https://airflow/" + "z" * 50_000}}
    read = parse_event(event)
    assert read.job.owners == ("team",)  # type: ignore[union-attr]
    assert read.airflow.log_url is None  # type: ignore[union-attr]


def test_an_incident_with_names_of_the_maximum_length_fits_into_a_record() -> None:
    snapshot = IncidentSnapshot({}, IncidentLedger())
    roots = [failed(number, "root") for number in range(60)]
    follow = [failed(100 + number, f"down{number}") for number in range(300)]
    (incident,) = matched([*roots, *follow], snapshot).opened
    incident = incident.model_copy(update={"live": live_facts(incident, [incident] * 200)})
    assert len(to_json(incident)) < BODY_LIMIT_BYTES
    assert incident.count == 60
    later = matched([failed(400, "root")], IncidentSnapshot({incident.incident_id: incident}, IncidentLedger()))
    assert later.changed[0].count == 61


def test_the_ledger_fits_into_a_record_however_many_incidents_are_active_or_capped() -> None:
    spans = tuple(
        IncidentSpan(
            incident_id=f"incident-{n}", job=f"job:{LONG}/{n}{LONG}", within=(f"job:{LONG}/{LONG}",), first=NOW
        )
        for n in range(1500)
    )
    now = NOW + timedelta(hours=1)
    ledger = IncidentLedger(spans=spans, opened=(now,) * 100, capped=(now,) * 20_000)
    changes = matched([failed(1, "load")], IncidentSnapshot({}, ledger))
    assert [each.state for each in changes.changed] == [IncidentState.CAPPED]
    assert len(to_json(changes.ledger)) < BODY_LIMIT_BYTES
    assert changes.ledger.spans[-1].incident_id == changes.capped[0].incident_id

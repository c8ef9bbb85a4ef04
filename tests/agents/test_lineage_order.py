"""The incidents that stand are the same whatever the order, repetition and concurrency of the events."""

import random
from typing import Any

import pytest
from agents.incident_reference import Standing, final_incidents, flood, history
from agents.incident_simulation import IncidentSimulation, run_event
from agents.lineage_house import House

from counterpoint.graph.names import node_of
from counterpoint.lineage.incidents.incident import IncidentLimits, IncidentRecord, IncidentState, unresolved_failures

QUICK = (*range(8), 145, 191)
MORE = range(8, 16)
PATIENT = IncidentLimits(incidents_per_hour=1000, retry_grace_s=900)


def of(incidents: list[IncidentRecord]) -> Standing:
    """Incidents in the terms of the reference."""
    assert all(incident.state is IncidentState.OPEN for incident in incidents)
    return frozenset(
        (
            node_of(i.job).name,
            i.error_message,
            i.count,
            frozenset(failed.run_id for failed in i.failures if failed.over_at is None),
            frozenset(node_of(failed.job).name for failed in unresolved_failures(i.affected)),
        )
        for i in incidents
    )


@pytest.mark.parametrize("seed", [*QUICK, *(pytest.param(seed, marks=pytest.mark.slow) for seed in MORE)])
async def test_shuffled_and_repeated_events_leave_the_reference_s_incidents(seed: int) -> None:
    known, draw = history(seed), random.Random(seed)
    events = [*known.events, *draw.sample(known.events, k=min(8, len(known.events)))]
    if seed % 4:
        draw.shuffle(events)
    house = House(limits=PATIENT)
    for at in range(0, len(events), 10):
        if seed % 3:
            await house.take(events[at : at + 10])
        else:
            await house.take_at_once(events[at : at + 10])
        if seed % 5 == 0:
            await house.wait(draw.choice([0, 60, 1000]))
    await house.wait(10_000)
    assert of([i for i in house.incidents if i.active]) == final_incidents(known)


def shuffled(events: list[dict[str, Any]], draw: random.Random) -> list[dict[str, Any]]:
    return draw.sample(events, k=len(events))


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_flood_of_ten_thousand_events_leaves_the_reference_s_incidents() -> None:
    known, draw = flood(1), random.Random(1)
    late = sorted(known.events, key=lambda event: (event["eventTime"], draw.random()))
    events = [
        event for at in range(0, len(late), 300) for event in draw.sample(late[at : at + 300], len(late[at : at + 300]))
    ]
    assert len(events) >= 10_000
    assert sum(event["eventType"] == "FAIL" for event in events) >= 200
    house = House(limits=PATIENT)
    for at in range(0, len(events), 20):
        await house.take_at_once(events[at : at + 20])
    await house.wait(10_000)
    assert of([i for i in house.incidents if i.active]) == final_incidents(known)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(50))
def test_a_thousand_shuffles_of_a_history_leave_the_same_incidents(seed: int) -> None:
    known = history(seed)
    wanted = final_incidents(known)
    for shuffle in range(1000):
        draw = random.Random(f"{seed} {shuffle}")
        events = [*known.events, *draw.sample(known.events, k=min(8, len(known.events)))]
        draw.shuffle(events)
        simulation = IncidentSimulation(PATIENT).take(events).end_grace()
        while any(incident.state is IncidentState.WAITING for incident in simulation.active):
            simulation.end_grace()
        assert of(simulation.active) == wanted, shuffle


@pytest.mark.parametrize("first", ["edge", "failure"])
async def test_an_edge_and_a_failure_below_it_at_the_same_moment_see_each_other(first: str) -> None:
    house = House(limits=PATIENT)
    await house.take([run_event("FAIL", 0, job="first", run_id="r", error="disk is full", writes=["t0"])])
    await house.take([run_event("START", 1, job="below", run_id="l", reads=["t1"])])
    edge = run_event("START", 1, job="between", run_id="b", reads=["t0"], writes=["t1"])
    failure = run_event("FAIL", 2, job="below", run_id="l", error="no such file", reads=["t1"])
    before, after = (edge, failure) if first == "edge" else (failure, edge)
    house.before_commit = lambda: house.take([before])
    await house.take([after])
    await house.wait(0)
    (incident,) = [incident for incident in house.incidents if incident.active]
    assert (incident.job, incident.affected_count) == ("job:ns/first", 1)

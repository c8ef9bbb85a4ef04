"""Lineage is killed or down while failed flows come in: the incidents that stand are those of the reference."""

import asyncio
import json
import os
import random
import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import nats.js.errors
import pytest
import pytest_asyncio
from agents.incident_reference import History, Standing, final_incidents, history
from agents.test_lineage_order import of
from flows.conftest import Outsider
from flows.found_secrets import quiet

from counterpoint.lineage.incidents.incident import IncidentRecord, IncidentState
from counterpoint.local.stack import Stack
from counterpoint.proto.records import with_version

SEEDS = (10, 15, 16, 19, 21)
KILLS = 3
KEPT = """
SELECT body, version FROM records WHERE project = $1 AND store = 'incidents' AND id <> 'ledger'
"""


@pytest_asyncio.fixture
async def record(stack: Stack) -> "AsyncIterator[asyncpg.Connection[asyncpg.Record]]":
    """The database, read only."""
    connection = await asyncpg.connect(stack.endpoints.engines["postgres"].dsn)
    try:
        yield connection
    finally:
        await connection.close()


def lately(known: History) -> list[dict[str, Any]]:
    """The events of a history, moved to the days before now."""
    since = datetime.now(UTC) - max(datetime.fromisoformat(event["eventTime"]) for event in known.events)
    days = timedelta(days=since.days)
    moved = json.loads(json.dumps(known.events))
    for event in moved:
        event["eventTime"] = (datetime.fromisoformat(event["eventTime"]) + days).isoformat()
        nominal = event["run"]["facets"]["nominalTime"]
        nominal["nominalStartTime"] = (datetime.fromisoformat(nominal["nominalStartTime"]) + days).isoformat()
    return moved


async def publish(outsider: Outsider, project: str, event: dict[str, Any]) -> None:
    """Publish an event; again where the intake has no room for it."""
    while True:
        try:
            return await outsider.publish(f"intake.{project}.lineage", json.dumps(event).encode())
        except nats.js.errors.ServiceUnavailableError:
            await asyncio.sleep(0.05)


async def stored_incidents(record: "asyncpg.Connection[asyncpg.Record]", project: str) -> Standing | None:
    """The incidents that stand, in the terms of the reference; None while one of them still waits."""
    await record.execute("SELECT set_config('counterpoint.project', $1, false)", project)
    rows = await record.fetch(KEPT, project)
    every = [
        IncidentRecord.model_validate(with_version(IncidentRecord, json.loads(row["body"]), row["version"]))
        for row in rows
    ]
    active = [incident for incident in every if incident.active]
    return of(active) if all(incident.state is IncidentState.OPEN for incident in active) else None


def shuffled_histories(project: str) -> tuple[dict[str, Standing], list[tuple[str, dict[str, Any]]]]:
    """Return the incidents that a history per seed must leave, by project, and the events of all, shuffled."""
    projects = {f"{project}-{seed}": history(seed) for seed in SEEDS}
    events = [(name, event) for name, known in projects.items() for event in lately(known)]
    random.Random(1).shuffle(events)
    return {name: final_incidents(known) for name, known in projects.items()}, events


async def assert_incidents(
    stack: Stack, record: "asyncpg.Connection[asyncpg.Record]", wanted: dict[str, Standing]
) -> None:
    """Wait for the incidents of every project, and compare them once all consumers are idle."""
    for _ in range(1200):
        if wanted == {name: await stored_incidents(record, name) for name in wanted}:
            break
        await asyncio.sleep(0.1)
    await quiet(stack)
    assert wanted == {name: await stored_incidents(record, name) for name in wanted}


async def test_a_burst_during_which_lineage_is_killed_leaves_the_references_incidents(
    stack: Stack, outsider: Outsider, project: str, record: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    wanted, burst = shuffled_histories(project)
    part = len(burst) // (KILLS + 1)
    for number in range(KILLS + 1):
        for name, event in burst[number * part : (number + 1) * part if number < KILLS else None]:
            await publish(outsider, name, event)
        if number < KILLS:
            stack.kill("lineage")
            await stack.ready("lineage")
    await assert_incidents(stack, record, wanted)


@pytest.mark.slow
async def test_a_backlog_that_waited_while_lineage_was_down_leaves_the_references_incidents(
    stack: Stack, outsider: Outsider, project: str, record: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    wanted, backlog = shuffled_histories(project)
    lineage = stack.endpoints.services["lineage"].pid
    assert lineage is not None
    os.kill(lineage, signal.SIGSTOP)
    await asyncio.to_thread(os.waitid, os.P_PID, lineage, os.WSTOPPED | os.WNOWAIT)
    for name, event in backlog:
        await publish(outsider, name, event)
    assert {name: await stored_incidents(record, name) for name in wanted} != wanted
    stack.kill("lineage")
    await stack.ready("lineage")
    await assert_incidents(stack, record, wanted)

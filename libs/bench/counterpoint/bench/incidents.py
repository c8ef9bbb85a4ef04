"""`counterpoint bench incidents`: time from the last failure of a flow to the card of its incident, stage by stage.

    python -m counterpoint.bench.incidents [--json] [--rate 5] [--seconds 30]

Each flow has succeeded once and has a reader downstream. Its task fails for good, and then its DAG. The time runs from
the publication of the task's failure to the card on the bus: proposed or escalated.
"""

import asyncio
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.errors import ServiceUnavailableError

from counterpoint import bus
from counterpoint.bench.command_line import bench_folder, bench_parser
from counterpoint.bench.processes import cpu_seconds
from counterpoint.bench.report import BenchReport, Measurement, p50, p99, progress
from counterpoint.bench.temporary_stack import detached_stack
from counterpoint.local.endpoints import Endpoints, read_endpoints
from counterpoint.proto import subjects
from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.ids import new_id
from counterpoint.proto.lineage import LineageEvent
from counterpoint.proto.tasks import TaskDelegated, TaskEscalated, TaskProposed, TaskRouted, TaskWorked

PROJECT = "bench"
STAGES = {
    DecisionMade.TYPE: "lineage",
    TaskRouted.TYPE: "router",
    TaskDelegated.TYPE: "manager",
    TaskWorked.TYPE: "developer",
    TaskProposed.TYPE: "card",
    TaskEscalated.TYPE: "card",
}
"""Stage that ends with a message of each type."""
ERRORS = ("DiskFull: no space left on device", "UndefinedTable: relation orders does not exist", "ReadTimeout: 30 s")
ENDS_WITHIN_S = 120
FULL_S = 0.1
"""Pause before an event is published again to a project that has too many unread ones."""


@dataclass
class StageTimes:
    """Times of incidents by number: publication of the failure, and end of each stage."""

    began: dict[int, float] = field(default_factory=dict)
    ended: dict[str, dict[int, float]] = field(default_factory=lambda: {stage: {} for stage in STAGES.values()})
    number_of: dict[str, int] = field(default_factory=dict)
    early: dict[str, float] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def record(self, message: Msg) -> None:
        """Record a message. The number of an incident is known once its task is routed."""
        at, headers = time.perf_counter(), message.headers or {}
        stage, task_id = STAGES.get(headers.get("ce-type", "")), headers.get("ce-correlationid", "")
        if stage == "lineage":
            if json.loads(message.data).get("agent") == "lineage":
                self.early.setdefault(task_id, at)
            return
        if stage == "router":
            job = json.loads(message.data)["task"]["target"]["job"]["name"]
            number = self.number_of[task_id] = int(job.removeprefix("dag").partition(".")[0])
            self.ended["lineage"].setdefault(number, self.early.get(task_id, at))
        if stage and task_id in self.number_of:
            self.ended[stage].setdefault(self.number_of[task_id], at)
            self.changed.set()


def airflow_event(
    kind: str, at: datetime, job: str, run: str, parent: tuple[str, str] | None = None, **more: Any
) -> bytes:
    """Return a shortened OpenLineage event of Airflow."""
    facets: dict[str, Any] = {}
    if parent:
        facets["parent"] = {"job": {"namespace": "bench", "name": parent[0]}, "run": {"runId": parent[1]}}
        facets["airflow"] = {"task": {"retries": 0}, "taskInstance": {"try_number": 1}}
    if "error" in more:
        facets["errorMessage"] = {"message": more["error"]}
    kind_of_job = {"jobType": "TASK" if parent else "DAG", "integration": "AIRFLOW", "processingType": "BATCH"}
    raw = {
        "eventTime": at.isoformat(),
        "eventType": kind,
        "run": {"runId": run, "facets": facets},
        "job": {"namespace": "bench", "name": job, "facets": {"jobType": kind_of_job}},
        "inputs": [{"namespace": "db", "name": name} for name in more.get("reads", ())],
        "outputs": [{"namespace": "db", "name": name} for name in more.get("writes", ())],
    }
    return json.dumps(raw).encode()


def successful_run(number: int, at: datetime) -> Iterator[bytes]:
    """Yield the events of a successful run of a flow, and of its reader."""
    parent = (f"dag{number}", f"flow{number}-1")
    more = {"reads": [f"in{number}"], "writes": [f"out{number}"]}
    yield airflow_event("COMPLETE", at, f"fill{number}", f"fill{number}", writes=[f"in{number}"])
    yield airflow_event("START", at, f"dag{number}.load", f"load{number}-1", parent, **more)
    yield airflow_event("COMPLETE", at + timedelta(minutes=1), f"dag{number}.load", f"load{number}-1", parent, **more)
    reader = (f"use{number}", f"use-flow{number}")
    yield airflow_event(
        "COMPLETE", at + timedelta(minutes=2), f"use{number}.x", f"x{number}", reader, reads=[f"out{number}"]
    )


async def publish(client: Client, body: bytes) -> None:
    """Publish an event and wait until the stream has stored it, again if the project has too many unread."""
    subject, headers = subjects.of(LineageEvent.TYPE, PROJECT), {"Nats-Msg-Id": new_id()}
    while True:
        try:
            await client.jetstream().publish(subject, body, headers=headers)
        except ServiceUnavailableError:
            await asyncio.sleep(FULL_S)
        else:
            return


async def measure_incidents(endpoints: Endpoints, rate: float, seconds: float, report: BenchReport) -> None:
    """Measure `rate` incidents a second for `seconds` seconds."""
    incidents = max(1, int(rate * seconds))
    logins = (endpoints.users["publisher"], endpoints.users["observer"])
    publisher, observer = [
        await nats.connect(endpoints.nats, user=one.user, password=one.password, inbox_prefix=one.inbox_prefix.encode())
        for one in logins
    ]
    times, now = StageTimes(), datetime.now(UTC)
    await observer.subscribe(subjects.live_kind("tasks", PROJECT), cb=times.record)
    await observer.subscribe(subjects.live_kind("decisions", PROJECT), cb=times.record)
    await observer.flush()
    progress(f"{incidents} successful flows")
    for number in range(incidents):
        for body in successful_run(number, now - timedelta(days=1)):
            await publish(publisher, body)
    await fail_flows(publisher, times, [-1], rate, now)  # loads caches and models
    progress(f"{incidents} incidents, {rate:g} a second")
    report.note_load()
    before = cpu_seconds(endpoints)
    await fail_flows(publisher, times, range(incidents), rate, now)
    spent_s = {name: (total - before.get(name, 0.0)) / incidents for name, total in cpu_seconds(endpoints).items()}
    report.note_load()
    for client in (publisher, observer):
        await client.close()
    numbers = range(incidents)
    for stage in dict.fromkeys(STAGES.values()):
        took = [(times.ended[stage][n] - times.began[n]) * 1000 for n in numbers]
        targets = (250.0, 1500.0) if stage == "card" else (None, None)
        for name, value, target in (("p50", p50(took), targets[0]), ("p99", p99(took), targets[1])):
            report.measures.append(Measurement(f"failure to {stage}, {name}, {rate:g}/s", "ms", (value,), target))
    for name, spent in sorted(spent_s.items(), key=lambda each: -each[1]):
        report.measures.append(Measurement(f"processor time an incident, {name}", "ms", (spent * 1000,), None))


async def fail_flows(client: Client, times: StageTimes, numbers: Any, rate: float, now: datetime) -> None:
    """Let flows fail at a rate; return when all have a card."""
    start = time.perf_counter()

    async def one(number: int) -> None:
        parent, more = (f"dag{number}", f"flow{number}-2"), {"reads": [f"in{number}"], "writes": [f"out{number}"]}
        error = f"{ERRORS[number % len(ERRORS)]} ({number})"
        await publish(client, airflow_event("START", now, f"dag{number}.load", f"load{number}-2", parent, **more))
        times.began[number] = time.perf_counter()
        at = now + timedelta(seconds=30)
        await publish(
            client, airflow_event("FAIL", at, f"dag{number}.load", f"load{number}-2", parent, error=error, **more)
        )
        await publish(client, airflow_event("FAIL", at, f"dag{number}", parent[1], error="task_failure"))

    async with asyncio.TaskGroup() as group:
        for at, number in enumerate(numbers):
            await asyncio.sleep(max(0.0, start + at / rate - time.perf_counter()))
            group.create_task(one(number))
    async with asyncio.timeout(ENDS_WITHIN_S):
        while any(number not in times.ended["card"] for number in numbers):
            times.changed.clear()
            await times.changed.wait()


def main() -> None:
    """Run the command line."""
    parser = bench_parser(__doc__)
    parser.add_argument("--rate", type=float, default=5.0, help="incidents a second")
    parser.add_argument("--seconds", type=float, default=30.0, help="duration")
    args = parser.parse_args()
    report = BenchReport("incidents")
    os.environ["COUNTERPOINT_INCIDENTS_PER_HOUR"] = "1000000"
    with bench_folder("incidents") as folder, detached_stack(folder) as data_dir:
        bus.run(measure_incidents(read_endpoints(data_dir), args.rate, args.seconds, report))
    report.show()


if __name__ == "__main__":
    main()

"""`bench incidents`: from the last failure of a flow to the card of its incident, stage by stage.

    python tests/bench/incidents.py [--json] [--rate 5] [--seconds 30]

Each flow has worked once and has a reader downstream; its task fails for good, and then the DAG around it. The clock
runs from when the failure of the task is handed to the bus until the card is seen there: proposed or escalated.
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

if __name__ == "__main__":
    import sys

    sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.measure import Measure, Report, p50, p99, quiet_logs, say, stop_when_told
from chaos.processes import descendants

from counterpoint import bus
from counterpoint.local.endpoints import Endpoints, read_endpoints
from counterpoint.local.listening import Listening
from counterpoint.local.up import down, up
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
"""The stage that ends with a message of each type."""
ERRORS = ("DiskFull: no space left on device", "UndefinedTable: relation orders does not exist", "ReadTimeout: 30 s")
ENDS_WITHIN_S = 120
TICKS_S = os.sysconf("SC_CLK_TCK")


@dataclass
class Watch:
    """Moments of incidents: when the failure was handed in, and when each stage was seen, by number."""

    began: dict[int, float] = field(default_factory=dict)
    seen: dict[str, dict[int, float]] = field(default_factory=lambda: {stage: {} for stage in STAGES.values()})
    number_of: dict[str, int] = field(default_factory=dict)
    early: dict[str, float] = field(default_factory=dict)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self, message: Msg) -> None:
        """Note what was seen. The number of an incident is known once its task is routed."""
        at, headers = time.perf_counter(), message.headers or {}
        stage, task_id = STAGES.get(headers.get("ce-type", "")), headers.get("ce-correlationid", "")
        if stage == "lineage":
            if json.loads(message.data).get("agent") == "lineage":
                self.early.setdefault(task_id, at)
            return
        if stage == "router":
            job = json.loads(message.data)["task"]["target"]["job"]["name"]
            number = self.number_of[task_id] = int(job.removeprefix("dag").partition(".")[0])
            self.seen["lineage"].setdefault(number, self.early.get(task_id, at))
        if stage and task_id in self.number_of:
            self.seen[stage].setdefault(self.number_of[task_id], at)
            self.news.set()


def event(kind: str, at: datetime, job: str, run: str, parent: tuple[str, str] | None = None, **more: Any) -> bytes:
    """An OpenLineage event as Airflow sends it, shortened."""
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


def before(number: int, at: datetime) -> Iterator[bytes]:
    """A day on which the flow worked."""
    parent = (f"dag{number}", f"flow{number}-1")
    more = {"reads": [f"in{number}"], "writes": [f"out{number}"]}
    yield event("COMPLETE", at, f"fill{number}", f"fill{number}", writes=[f"in{number}"])
    yield event("START", at, f"dag{number}.load", f"load{number}-1", parent, **more)
    yield event("COMPLETE", at + timedelta(minutes=1), f"dag{number}.load", f"load{number}-1", parent, **more)
    reader = (f"use{number}", f"use-flow{number}")
    yield event("COMPLETE", at + timedelta(minutes=2), f"use{number}.x", f"x{number}", reader, reads=[f"out{number}"])


async def hand_in(client: Client, body: bytes) -> None:
    """Publish an event and wait until the stream has it."""
    subject = subjects.of(LineageEvent.TYPE, PROJECT)
    await client.jetstream().publish(subject, body, headers={"Nats-Msg-Id": new_id()})


def cpu_s(told: Endpoints) -> dict[str, float]:
    """The processor time that each service and engine has had, with what is below it."""
    pids = {name: each.pid for name, each in (*told.services.items(), *told.engines.items())}
    return {name: sum(_had_s(each) for each in {pid, *descendants(pid)}) for name, pid in pids.items() if pid}


def _had_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS_S


async def measured(told: Endpoints, rate: float, seconds: float, report: Report) -> None:
    """Post `rate` incidents a second for some seconds."""
    incidents = max(1, int(rate * seconds))
    logins = (told.users["publisher"], told.users["observer"])
    publisher, observer = [
        await nats.connect(told.nats, user=one.user, password=one.password, inbox_prefix=one.inbox_prefix.encode())
        for one in logins
    ]
    watch, now = Watch(), datetime.now(UTC)
    for kind in ("tasks", "decisions"):
        await observer.subscribe(subjects.live(f"{kind}.{PROJECT}.>"), cb=watch.take)
    await observer.flush()
    say(f"{incidents} flows work once")
    for number in range(incidents):
        for body in before(number, now - timedelta(days=1)):
            await hand_in(publisher, body)
    await failed(publisher, watch, [-1], rate, now)  # the first one finds nothing loaded
    say(f"{incidents} incidents, {rate:g} a second")
    report.note_load()
    had = cpu_s(told)
    await failed(publisher, watch, range(incidents), rate, now)
    used = {name: (total - had.get(name, 0.0)) / incidents for name, total in cpu_s(told).items()}
    report.note_load()
    for client in (publisher, observer):
        await client.close()
    measured_ones = range(incidents)
    for stage in dict.fromkeys(STAGES.values()):
        took = [(watch.seen[stage][n] - watch.began[n]) * 1000 for n in measured_ones]
        targets = (250.0, 1500.0) if stage == "card" else (None, None)
        for name, value, target in (("p50", p50(took), targets[0]), ("p99", p99(took), targets[1])):
            report.measures.append(Measure(f"failure handed in to {stage}, {name}, {rate:g}/s", "ms", (value,), target))
    for name, spent in sorted(used.items(), key=lambda each: -each[1]):
        report.measures.append(Measure(f"processor time per incident, {name}", "ms", (spent * 1000,), None))


async def failed(client: Client, watch: Watch, numbers: Any, rate: float, now: datetime) -> None:
    """Flows fail, so many a second; returns when all have their card."""
    start = time.perf_counter()

    async def one(number: int) -> None:
        parent, more = (f"dag{number}", f"flow{number}-2"), {"reads": [f"in{number}"], "writes": [f"out{number}"]}
        error = f"{ERRORS[number % len(ERRORS)]} ({number})"
        await hand_in(client, event("START", now, f"dag{number}.load", f"load{number}-2", parent, **more))
        watch.began[number] = time.perf_counter()
        at = now + timedelta(seconds=30)
        await hand_in(client, event("FAIL", at, f"dag{number}.load", f"load{number}-2", parent, error=error, **more))
        await hand_in(client, event("FAIL", at, f"dag{number}", parent[1], error="task_failure"))

    async with asyncio.TaskGroup() as group:
        for at, number in enumerate(numbers):
            await asyncio.sleep(max(0.0, start + at / rate - time.perf_counter()))
            group.create_task(one(number))
    async with asyncio.timeout(ENDS_WITHIN_S):
        while any(number not in watch.seen["card"] for number in numbers):
            watch.news.clear()
            await watch.news.wait()


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=5.0, help="incidents a second")
    parser.add_argument("--seconds", type=float, default=30.0, help="for how long")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    quiet_logs()
    stop_when_told()
    report = Report("incidents")
    os.environ["COUNTERPOINT_INCIDENTS_PER_HOUR"] = "1000000"
    with tempfile.TemporaryDirectory(prefix="counterpoint-bench-") as folder:
        os.chmod(folder, 0o755)
        data_dir = Path(folder) / "house"
        up(data_dir, listening=Listening(http_port=0), detach=True)
        try:
            bus.run(measured(read_endpoints(data_dir), given.rate, given.seconds, report))
        finally:
            down(data_dir)
    report.show()


if __name__ == "__main__":
    main()

"""`counterpoint bench load`: all five services under a mix of tasks at a fixed rate, whether they keep up or not.

    python -m counterpoint.bench.load [MIX] [--json] [--rate 10] [--seconds 60]

A mix is a JSON file: `chunks` per project, `kinds` (`question`, `incident`) and `projects` by weight, and `alone`: a
project that submits one question every `every_s` seconds, which shows the wait of a small project behind a large one. A
task is finished when it is answered, proposed or escalated.
"""

import asyncio
import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import nats
from nats.aio.msg import Msg

from counterpoint import bus
from counterpoint.bench.command_line import bench_folder, bench_parser
from counterpoint.bench.processes import cpu_seconds, tree_rss_mb
from counterpoint.bench.report import (
    BenchReport,
    Measurement,
    RetryTransport,
    p50,
    p99,
    progress,
)
from counterpoint.bench.service_documents import ingest_services, port_question, service_names
from counterpoint.bench.synthetic_incidents import ERROR_CLASSES, ERROR_MESSAGES, JOBS, TABLES, SyntheticIncident
from counterpoint.bench.temporary_stack import detached_stack
from counterpoint.local.credentials import load_credentials
from counterpoint.local.endpoints import Endpoints, read_endpoints
from counterpoint.local.service import NATS_USERS
from counterpoint.local.state_file import read_state
from counterpoint.proto import subjects
from counterpoint.proto.ids import new_id
from counterpoint.proto.tasks import TaskCompleted, TaskDelegated, TaskEscalated, TaskProposed, TaskSubmitted

ENDS = (TaskCompleted.TYPE, TaskProposed.TYPE, TaskEscalated.TYPE)
HALF = Path(__file__).parent / "mixes" / "half.json"
WARM_UP = 20
DRAIN_S = 120
_COUNTS = """
SELECT (SELECT count(*) FROM audit) AS commits, (SELECT count(*) FROM logged_messages) AS messages,
       (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()) AS transactions,
       pg_current_wal_lsn() - '0/0'::pg_lsn AS wal, pg_database_size(current_database()) AS bytes,
       pg_total_relation_size('records') + pg_total_relation_size('history') AS records,
       pg_total_relation_size('audit') AS audit, pg_total_relation_size('messages') AS log,
       pg_total_relation_size('read_sets') AS reads, pg_total_relation_size('inbox') AS inbox
"""
_SIZES = {
    "WAL": "wal",
    "database": "bytes",
    "records and their history": "records",
    "audit log": "audit",
    "message log": "log",
    "read sets": "reads",
    "inbox": "inbox",
    "bus": "bus",
}
"""Names of the counted sizes."""


@dataclass(frozen=True)
class TaskMix:
    """Mix of tasks: kinds and projects by weight, chunks per project, and the project with single questions."""

    chunks: int
    kinds: dict[str, float]
    projects: dict[str, float]
    alone: tuple[str, float] | None

    @classmethod
    def read(cls, path: Path) -> "TaskMix":
        """Read a mix from its file. Raises `KeyError` for a missing field."""
        raw = json.loads(path.read_text())
        alone = raw.get("alone")
        return cls(
            raw["chunks"], raw["kinds"], raw["projects"], (alone["project"], alone["every_s"]) if alone else None
        )

    def tasks(self, draw: random.Random) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield projects and tasks without end."""
        services = service_names(self.chunks)
        while True:
            (kind,) = draw.choices(list(self.kinds), list(self.kinds.values()))
            (project,) = draw.choices(list(self.projects), list(self.projects.values()))
            yield project, question_task(draw, services) if kind == "question" else incident_task(draw)


def question_task(draw: random.Random, services: list[str]) -> dict[str, Any]:
    """Return a question that the documents answer."""
    return {"kind": "question", "description": port_question(draw.choice(services))}


def incident_task(draw: random.Random) -> dict[str, Any]:
    """Return the report of a failed job."""
    first, second = draw.sample(TABLES, 2)
    cause = draw.choice(ERROR_CLASSES), draw.choice(ERROR_MESSAGES), first, second
    incident = SyntheticIncident(draw.choice(JOBS), cause, draw.randrange(5, 900))
    return {"kind": "troubleshoot", "target": {"job": {"namespace": "plant", "name": incident.job}}, **incident.report}


@dataclass
class TaskTimes:
    """Times of tasks. `at` has the seconds from submission to the first message of each type, by type and task id."""

    began: dict[str, float] = field(default_factory=dict)
    project: dict[str, str] = field(default_factory=dict)
    at: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    ended: dict[str, float] = field(default_factory=dict)
    refused: int = 0

    async def record(self, message: Msg) -> None:
        """Record the time of a message of a task."""
        now, headers = time.perf_counter(), message.headers or {}
        task_id, message_type = headers.get("ce-correlationid", ""), headers.get("ce-type", "")
        if task_id in self.began:
            self.at[message_type].setdefault(task_id, now - self.began[task_id])
            if message_type in ENDS:
                self.ended.setdefault(task_id, now)

    def waits(self, message_types: tuple[str, ...], project: str) -> list[float]:
        """Return the seconds to the first message of these types, for the tasks of a project that have one."""
        firsts: dict[str, float] = {}
        for message_type in message_types:
            for task_id, wait in self.at[message_type].items():
                if self.project[task_id] == project:
                    firsts[task_id] = min(wait, firsts.get(task_id, wait))
        return list(firsts.values())


class LoadTarget:
    """Running services under load: bus, HTTP API, processes and database."""

    def __init__(self, endpoints: Endpoints, data_dir: Path) -> None:
        self.endpoints = endpoints
        self._data_dir = data_dir
        self.times = TaskTimes()

    async def open(self) -> None:
        """Connect to the bus, and to the database as its superuser."""
        clients = []
        for one in (self.endpoints.users["publisher"], self.endpoints.users["observer"]):
            clients.append(await nats.connect(self.endpoints.nats, **one.arguments))
        self._publisher, self._observer = clients
        await self._observer.subscribe(subjects.live_kind("tasks", "*"), cb=self.times.record)
        await self._observer.flush()
        secrets = load_credentials(self._data_dir / "secrets.json", NATS_USERS)
        self._postgres = await asyncpg.connect(
            host="127.0.0.1", port=read_state(self._data_dir / "state.json").ports["postgres"],
            user="postgres", password=secrets.postgres.superuser, database="counterpoint",
        )  # fmt: skip

    async def close(self) -> None:
        """Disconnect."""
        for client in (self._publisher, self._observer):
            await client.close()
        await self._postgres.close()

    async def ingest(self, projects: Iterator[str] | list[str], chunks: int) -> None:
        """Ingest `chunks` chunks into each project."""
        headers = {"Authorization": f"Bearer {self.endpoints.token}"}
        async with httpx.AsyncClient(
            base_url=self.endpoints.http, headers=headers, timeout=600, transport=RetryTransport()
        ) as http:
            for project in projects:
                progress(f"{project}: {await ingest_services(http, project, service_names(chunks))} chunks")

    async def submit(self, project: str, task: dict[str, Any]) -> str:
        """Publish a task and return its id. Its time starts before the publication."""
        task_id = new_id()
        self.times.began[task_id], self.times.project[task_id] = time.perf_counter(), project
        try:
            await self._publisher.jetstream().publish(
                subjects.of("counterpoint.task.submit.v1", project),
                json.dumps({"task_id": task_id, **task}).encode(),
                headers={"Nats-Msg-Id": task_id},
            )
        except (nats.errors.Error, nats.js.errors.Error):
            self.times.refused += 1
        return task_id

    async def counts(self) -> Counter[str]:
        """Return totals of the database, and the bytes on the disk of the bus."""
        row = await self._postgres.fetchrow(_COUNTS)
        assert row is not None
        bus_dir = self._data_dir / "nats"
        bus_bytes = sum(path.stat().st_size for path in bus_dir.rglob("*") if path.is_file())
        return Counter({name: int(value) for name, value in row.items()} | {"bus": bus_bytes})

    def rss_mb(self, service: str) -> float:
        """Return the resident memory of a service and its descendants, in MiB."""
        return tree_rss_mb(self.endpoints.services[service].pid or 0)


async def submit_at_rate(target: LoadTarget, mix: TaskMix, rate: float, seconds: float) -> float:
    """Submit tasks at a rate. Return the start time."""
    draw = random.Random(11)
    tasks = mix.tasks(draw)
    began = time.perf_counter()

    async def alone() -> None:
        assert mix.alone is not None
        project, every_s = mix.alone
        services = service_names(mix.chunks)
        while True:
            await asyncio.sleep(every_s)
            await target.submit(project, question_task(draw, services))

    async with asyncio.TaskGroup() as group:
        beside = group.create_task(alone()) if mix.alone else None
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
            project, task = next(tasks)
            group.create_task(target.submit(project, task))
        await asyncio.sleep(max(0.0, began + seconds - time.perf_counter()))
        if beside is not None:
            beside.cancel()
    return began


async def warm_up(target: LoadTarget, mix: TaskMix) -> None:
    """Run a few tasks of each project, so that caches and models are loaded."""
    tasks = mix.tasks(random.Random(7))
    ahead = [await target.submit(*next(tasks)) for _ in range(WARM_UP)]
    if mix.alone:
        ahead.append(await target.submit(mix.alone[0], question_task(random.Random(8), service_names(mix.chunks))))
    await _wait_for_end(target, ahead)


async def _wait_for_end(target: LoadTarget, tasks: list[str]) -> None:
    until = time.perf_counter() + DRAIN_S
    while any(task not in target.times.ended for task in tasks) and time.perf_counter() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.1)


async def measure_load(target: LoadTarget, mix: TaskMix, rate: float, seconds: float, report: BenchReport) -> None:
    """Measure one run at a rate."""
    await target.open()
    try:
        await target.ingest([*mix.projects, *([mix.alone[0]] if mix.alone else [])], mix.chunks)
        await warm_up(target, mix)
        times = target.times
        for table in (times.began, times.at, times.ended):
            table.clear()
        cpu, counts, rss = cpu_seconds(target.endpoints), await target.counts(), target.rss_mb("memory")
        report.note_load()
        progress(f"{rate:g} tasks a second for {seconds:g} s")
        began = await submit_at_rate(target, mix, rate, seconds)
        in_time = sum(at <= began + seconds for at in times.ended.values())
        report.note_load()
        progress(f"{in_time} of {len(times.began)} finished; the rest has {DRAIN_S} s")
        await _wait_for_end(target, list(times.began))
        finished = max(1, len(times.ended))
        used = cpu_seconds(target.endpoints)
        spent = {name: (total - cpu.get(name, 0.0)) * 1000 / finished for name, total in used.items()}
        grown = await target.counts()
        grown.subtract(counts)

        def row(name: str, unit: str, value: float) -> None:
            report.measures.append(Measurement(name, unit, (value,), None))

        row("offered", "/s", len(times.began) / seconds)
        row("finished within the time", "/s", in_time / seconds)
        row("refused by the bus", "", times.refused)
        row("never finished", "", len(times.began) - len(times.ended))
        for project in [*mix.projects, *([mix.alone[0]] if mix.alone else [])]:
            for stage, types in (
                ("accepted", (TaskSubmitted.TYPE,)),
                ("delegated", (TaskDelegated.TYPE,)),
                ("finished", ENDS),
            ):
                waits = times.waits(types, project)
                for name, percentile in (("p50", p50), ("p99", p99)):
                    row(f"{project}: submitted to {stage}, {name}", "s", percentile(waits) if waits else -1)
        row("processor time a task, all processes", "ms", sum(spent.values()))
        for name, cpu_ms in sorted(spent.items(), key=lambda each: -each[1]):
            row(f"processor time a task, {name}", "ms", cpu_ms)
        for name in ("commits", "messages", "transactions"):
            row(f"{name} a task", "", grown[name] / finished)
        for name, key in _SIZES.items():
            row(f"bytes a task, {name}", "KB", grown[key] / finished / 1024)
        row("resident memory of `memory` before", "MB", rss)
        row("resident memory of `memory` after", "MB", target.rss_mb("memory"))
    finally:
        await target.close()


def main() -> None:
    """Run the command line."""
    parser = bench_parser(__doc__)
    parser.add_argument("mix", type=Path, nargs="?", default=HALF, help="file of a mix")
    parser.add_argument("--rate", type=float, default=10.0, help="tasks a second")
    parser.add_argument("--seconds", type=float, default=60.0, help="duration")
    args = parser.parse_args()
    report = BenchReport("load")
    with bench_folder("load") as folder, detached_stack(folder) as data_dir:
        target = LoadTarget(read_endpoints(data_dir), data_dir)
        bus.run(measure_load(target, TaskMix.read(args.mix), args.rate, args.seconds, report))
    report.show()


if __name__ == "__main__":
    main()

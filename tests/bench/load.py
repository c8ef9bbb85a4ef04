"""`bench load`: the whole house under a mix of tasks, offered at a fixed rate whether it keeps up or not.

    python tests/bench/load.py tests/bench/mixes/half.json [--json] [--rate 10] [--seconds 60]

A mix is a JSON file: `chunks` of documents that each project holds, `kinds` (`question`, `incident`) and `projects` by
weight, and `alone`: a project that hands in one question every so many seconds, which shows what a small project waits
behind a large one. A task is finished when it is answered, proposed or escalated.
"""

import argparse
import asyncio
import json
import os
import random
import tempfile
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

if __name__ == "__main__":
    import sys

    sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.incidents import cpu_s
from bench.invented import CLASSES, JOBS, MESSAGES, NOUNS, Invented
from bench.knowledge import ingest, names, question
from bench.measure import Measure, Patient, Report, p50, p99, quiet_logs, say, stop_when_told
from chaos.processes import descendants

from counterpoint import bus
from counterpoint.local.credentials import load_credentials
from counterpoint.local.endpoints import Endpoints, read_endpoints
from counterpoint.local.listening import Listening
from counterpoint.local.service import NATS_USERS
from counterpoint.local.state import read_state
from counterpoint.local.up import down, up
from counterpoint.proto import subjects
from counterpoint.proto.ids import new_id
from counterpoint.proto.tasks import TaskCompleted, TaskDelegated, TaskEscalated, TaskProposed, TaskSubmitted

ENDS = (TaskCompleted.TYPE, TaskProposed.TYPE, TaskEscalated.TYPE)
WARM_UP = 20
DRAIN_S = 120
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_COUNTS = """
SELECT (SELECT count(*) FROM audit) AS commits, (SELECT count(*) FROM messages) AS messages,
       (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()) AS transactions,
       pg_current_wal_lsn() - '0/0'::pg_lsn AS wal, pg_database_size(current_database()) AS bytes
"""


@dataclass(frozen=True)
class Mix:
    """Tasks to offer: kinds and projects by weight, the chunks of each project, and the project that is alone."""

    chunks: int
    kinds: dict[str, float]
    projects: dict[str, float]
    alone: tuple[str, float] | None

    @classmethod
    def read(cls, path: Path) -> "Mix":
        """From its file. Raises `KeyError` for a field that is missing."""
        said = json.loads(path.read_text())
        alone = said.get("alone")
        return cls(
            said["chunks"], said["kinds"], said["projects"], (alone["project"], alone["every_s"]) if alone else None
        )

    def tasks(self, draw: random.Random) -> Iterator[tuple[str, dict[str, Any]]]:
        """Projects and their tasks, for ever."""
        services = names(self.chunks)
        while True:
            (kind,) = draw.choices(list(self.kinds), list(self.kinds.values()))
            (project,) = draw.choices(list(self.projects), list(self.projects.values()))
            yield project, asked(draw, services) if kind == "question" else failed(draw)


def asked(draw: random.Random, services: list[str]) -> dict[str, Any]:
    """A question that the documents answer."""
    return {"kind": "question", "description": question(draw.choice(services))}


def failed(draw: random.Random) -> dict[str, Any]:
    """An incident of a job."""
    cause = draw.choice(CLASSES), draw.choice(MESSAGES), *draw.sample(NOUNS, 2)
    made = Invented(draw.choice(JOBS), cause, draw.randrange(5, 900))
    return {"kind": "troubleshoot", "target": {"job": {"namespace": "plant", "name": made.job}}, **made.report}


@dataclass
class Seen:
    """Moments of the tasks in seconds after they were handed in, by the type of what was seen of each."""

    began: dict[str, float] = field(default_factory=dict)
    project: dict[str, str] = field(default_factory=dict)
    at: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    ended: dict[str, float] = field(default_factory=dict)
    refused: int = 0

    async def take(self, message: Msg) -> None:
        """Note what was seen of a task."""
        now, headers = time.perf_counter(), message.headers or {}
        task_id, message_type = headers.get("ce-correlationid", ""), headers.get("ce-type", "")
        if task_id in self.began:
            self.at[message_type].setdefault(task_id, now - self.began[task_id])
            if message_type in ENDS:
                self.ended.setdefault(task_id, now)

    def waits(self, message_types: tuple[str, ...], project: str) -> list[float]:
        """Seconds until the first of these was seen, of the tasks of a project that came so far."""
        firsts: dict[str, float] = {}
        for message_type in message_types:
            for task_id, wait in self.at[message_type].items():
                if self.project[task_id] == project:
                    firsts[task_id] = min(wait, firsts.get(task_id, wait))
        return list(firsts.values())


class House:
    """A running house: its doors for tasks and documents, its processes and its record."""

    def __init__(self, told: Endpoints, data_dir: Path) -> None:
        self.told = told
        self._data_dir = data_dir
        self.seen = Seen()

    async def open(self) -> None:
        """Connect. The record is looked into as its superuser."""
        clients = []
        for one in (self.told.users["publisher"], self.told.users["observer"]):
            inbox = one.inbox_prefix.encode()
            clients.append(await nats.connect(self.told.nats, user=one.user, password=one.password, inbox_prefix=inbox))
        self._publisher, self._observer = clients
        await self._observer.subscribe(subjects.live("tasks.*.>"), cb=self.seen.take)
        await self._observer.flush()
        secrets = load_credentials(self._data_dir / "secrets.json", NATS_USERS)
        self._record = await asyncpg.connect(
            host="127.0.0.1", port=read_state(self._data_dir / "state.json").ports["postgres"],
            user="postgres", password=secrets.postgres.superuser, database="counterpoint",
        )  # fmt: skip

    async def close(self) -> None:
        """Disconnect."""
        for client in (self._publisher, self._observer):
            await client.close()
        await self._record.close()

    async def learn(self, projects: Iterator[str] | list[str], chunks: int) -> None:
        """Have each project hold so many chunks."""
        headers = {"Authorization": f"Bearer {self.told.token}"}
        async with httpx.AsyncClient(
            base_url=self.told.http, headers=headers, timeout=600, transport=Patient()
        ) as http:
            for project in projects:
                say(f"{project}: {await ingest(http, project, names(chunks))} chunks")

    async def hand_in(self, project: str, task: dict[str, Any]) -> str:
        """Publish a task; it is counted from before it is handed to the bus."""
        task_id = new_id()
        self.seen.began[task_id], self.seen.project[task_id] = time.perf_counter(), project
        try:
            await self._publisher.jetstream().publish(
                subjects.of("counterpoint.task.submit.v1", project),
                json.dumps({"task_id": task_id, **task}).encode(),
                headers={"Nats-Msg-Id": task_id},
            )
        except (nats.errors.Error, nats.js.errors.Error):
            self.seen.refused += 1
        return task_id

    async def counts(self) -> Counter[str]:
        """Totals of the record, in their units, and the bytes that the bus holds."""
        row = await self._record.fetchrow(_COUNTS)
        assert row is not None
        bus_dir = self._data_dir / "nats"
        held = sum(path.stat().st_size for path in bus_dir.rglob("*") if path.is_file())
        return Counter({name: int(value) for name, value in row.items()} | {"bus": held})

    def rss_mb(self, service: str) -> float:
        """Resident memory of a service and what is below it."""
        pid = self.told.services[service].pid or 0
        return sum(_resident(each) for each in {pid, *descendants(pid)}) / 2**20


async def offered(house: House, mix: Mix, rate: float, seconds: float) -> float:
    """Hand in tasks at a rate. Return the moment when it began."""
    draw = random.Random(11)
    tasks = mix.tasks(draw)
    began = time.perf_counter()

    async def alone() -> None:
        assert mix.alone is not None
        project, every_s = mix.alone
        services = names(mix.chunks)
        while True:
            await asyncio.sleep(every_s)
            await house.hand_in(project, asked(draw, services))

    async with asyncio.TaskGroup() as group:
        beside = group.create_task(alone()) if mix.alone else None
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
            project, task = next(tasks)
            group.create_task(house.hand_in(project, task))
        await asyncio.sleep(max(0.0, began + seconds - time.perf_counter()))
        if beside is not None:
            beside.cancel()
    return began


async def warmed(house: House, mix: Mix) -> None:
    """Send a few tasks ahead, to each project: the first of them finds nothing loaded."""
    tasks = mix.tasks(random.Random(7))
    ahead = [await house.hand_in(*next(tasks)) for _ in range(WARM_UP)]
    if mix.alone:
        ahead.append(await house.hand_in(mix.alone[0], asked(random.Random(8), names(mix.chunks))))
    await _ended(house, ahead)


async def _ended(house: House, tasks: list[str]) -> None:
    until = time.perf_counter() + DRAIN_S
    while any(task not in house.seen.ended for task in tasks) and time.perf_counter() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.1)


async def measured(house: House, mix: Mix, rate: float, seconds: float, report: Report) -> None:
    """One run at a rate."""
    await house.open()
    try:
        await house.learn([*mix.projects, *([mix.alone[0]] if mix.alone else [])], mix.chunks)
        await warmed(house, mix)
        seen = house.seen
        seen.began.clear(), seen.at.clear(), seen.ended.clear()
        cpu, counts, rss = cpu_s(house.told), await house.counts(), house.rss_mb("memory")
        report.note_load()
        say(f"{rate:g} tasks a second for {seconds:g} s")
        began = await offered(house, mix, rate, seconds)
        in_time = sum(at <= began + seconds for at in seen.ended.values())
        report.note_load()
        say(f"{in_time} of {len(seen.began)} finished; the rest has {DRAIN_S} s")
        await _ended(house, list(seen.began))
        finished = max(1, len(seen.ended))
        spent = {name: (total - cpu.get(name, 0.0)) * 1000 / finished for name, total in cpu_s(house.told).items()}
        grown = await house.counts()
        grown.subtract(counts)

        def row(name: str, unit: str, value: float) -> None:
            report.measures.append(Measure(name, unit, (value,), None))

        row("offered", "/s", len(seen.began) / seconds)
        row("finished within the time", "/s", in_time / seconds)
        row("refused by the bus", "", seen.refused)
        row("never finished", "", len(seen.began) - len(seen.ended))
        for project in [*mix.projects, *([mix.alone[0]] if mix.alone else [])]:
            for what, types in (
                ("accepted", (TaskSubmitted.TYPE,)),
                ("delegated", (TaskDelegated.TYPE,)),
                ("finished", ENDS),
            ):
                waits = seen.waits(types, project)
                for name, of in (("p50", p50), ("p99", p99)):
                    row(f"{project}: handed in to {what}, {name}", "s", of(waits) if waits else -1)
        row("processor time a task, all processes", "ms", sum(spent.values()))
        for name, had in sorted(spent.items(), key=lambda each: -each[1]):
            row(f"processor time a task, {name}", "ms", had)
        for name in ("commits", "messages", "transactions"):
            row(f"{name} a task", "", grown[name] / finished)
        for name, key in (("WAL", "wal"), ("the record", "bytes"), ("the bus", "bus")):
            row(f"bytes a task, {name}", "KB", grown[key] / finished / 1024)
        row("resident memory of `memory` before", "MB", rss)
        row("resident memory of `memory` after", "MB", house.rss_mb("memory"))
    finally:
        await house.close()


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
    except (FileNotFoundError, ProcessLookupError):
        return 0


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mix", type=Path)
    parser.add_argument("--rate", type=float, default=10.0, help="tasks a second")
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    quiet_logs()
    stop_when_told()
    report = Report("load")
    with tempfile.TemporaryDirectory(prefix="counterpoint-bench-") as folder:
        os.chmod(folder, 0o755)
        data_dir = Path(folder) / "house"
        up(data_dir, listening=Listening(http_port=0), detach=True)
        try:
            house = House(read_endpoints(data_dir), data_dir)
            bus.run(measured(house, Mix.read(given.mix), given.rate, given.seconds, report))
        finally:
            down(data_dir)
    report.show()


if __name__ == "__main__":
    main()

"""`bench flow`: a task through the whole path, the rule against handlers that publish the same messages directly.

    python tests/bench/flow.py [--json] [--tasks 300] [--chunks 5000]

The toys stand in for the services where only the path is measured; questions and the start are those of the house.
"""

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.direct import PASSWORD, PROJECT, USER
from bench.knowledge import ingest, names, question
from bench.measure import Measure, Report, p50, p99, quiet_logs, say, stop_when_told
from bench.small import small
from chaos.processes import descendants

from counterpoint import bus
from counterpoint.bus.provision import provision
from counterpoint.local.endpoints import Endpoints, read_endpoints
from counterpoint.local.listening import Listening
from counterpoint.local.nats import run_nats
from counterpoint.local.state import read_state
from counterpoint.local.up import down, up
from counterpoint.proto import subjects
from counterpoint.proto.ids import new_id
from counterpoint.proto.tasks import TaskCompleted, TaskEscalated

RUNS = 3
IN_FLIGHT = 50
ALONE = 60
QUESTIONS = 40
DIRECT = Path(__file__).with_name("direct.py")
_ENDS = (TaskCompleted.TYPE, TaskEscalated.TYPE)


@dataclass(frozen=True)
class Flow:
    """One run over a bus: hops and whole paths one at a time in milliseconds, and tasks a second many at a time."""

    hops_ms: list[float]
    paths_ms: list[float]
    tasks_s: float


class Bus:
    """Somebody who hands in tasks and sees what becomes of them, with the moment it was seen."""

    def __init__(self, publisher: Client, observer: Client) -> None:
        self._publisher = publisher
        self._observer = observer
        self._seen: dict[str, list[tuple[str, float]]] = {}
        self._ended: dict[str, asyncio.Future[None]] = {}

    async def open(self) -> None:
        """Begin to watch."""
        await self._observer.subscribe(subjects.live(f"tasks.{PROJECT}.>"), cb=self._message)
        await self._observer.flush()

    async def task(self, description: str = "a toy") -> list[tuple[str, float]]:
        """Hand in a task and wait for its end: what was seen of it and when, in seconds after it was handed in."""
        task_id = new_id()
        seen = self._seen[task_id] = []
        ended = self._ended[task_id] = asyncio.get_running_loop().create_future()
        body = {"task_id": task_id, "kind": "question", "description": description}
        began = time.perf_counter()
        await self._publisher.jetstream().publish(
            subjects.of("counterpoint.task.submit.v1", PROJECT),
            json.dumps(body).encode(),
            headers={"Nats-Msg-Id": task_id},
        )
        await asyncio.wait_for(ended, 60)
        del self._seen[task_id], self._ended[task_id]
        return [(message_type, at - began) for message_type, at in seen]

    async def run(self, tasks: int) -> Flow:
        """A few one at a time, then many."""
        hops: list[float] = []
        paths: list[float] = []
        for _ in range(ALONE):
            at = 0.0
            for message_type, seen_s in await self.task():
                if message_type.startswith("counterpoint.task.") and message_type != "counterpoint.task.submitted.v1":
                    hops.append((seen_s - at) * 1000)
                    at = seen_s
            paths.append(at * 1000)
        places = asyncio.Semaphore(IN_FLIGHT)

        async def one() -> None:
            async with places:
                await self.task()

        began = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(tasks)))
        return Flow(hops, paths, tasks / (time.perf_counter() - began))

    async def _message(self, message: Msg) -> None:
        at, headers = time.perf_counter(), message.headers or {}
        seen = self._seen.get(headers.get("ce-correlationid", ""))
        if seen is None:
            return
        seen.append((headers["ce-type"], at))
        if headers["ce-type"] in _ENDS:
            self._ended[headers["ce-correlationid"]].set_result(None)


@asynccontextmanager
async def bus_of(told: Endpoints) -> AsyncIterator[Bus]:
    """A running stack's publisher and observer."""
    clients = []
    for login in (told.users["publisher"], told.users["observer"]):
        inbox = login.inbox_prefix.encode()
        clients.append(await nats.connect(told.nats, user=login.user, password=login.password, inbox_prefix=inbox))
    bus = Bus(*clients)
    await bus.open()
    try:
        yield bus
    finally:
        for client in clients:
            await client.close()


@asynccontextmanager
async def direct(folder: Path, kind: str) -> AsyncIterator[Bus]:
    """A bus of its own with the three services of `direct.py` on it."""
    async with run_nats(folder, f'authorization {{ user: {USER}, password: "{PASSWORD}" }}') as server:
        await provision(server.url, USER, PASSWORD)
        services = [
            await asyncio.create_subprocess_exec(sys.executable, str(DIRECT), kind, name, server.url)
            for name in ("router", "manager", "developer")
        ]
        client = await nats.connect(server.url, user=USER, password=PASSWORD)
        bus = Bus(client, client)
        await bus.open()
        try:
            await bus.task()
            yield bus
        finally:
            await client.close()
            for service in services:
                service.kill()
                await service.wait()


async def paths(folder: Path, tasks: int, report: Report) -> None:
    """The rule, direct handlers on FastStream, and direct handlers on nats-py, in turn."""
    runs: dict[str, list[Flow]] = {"rule": [], "faststream": [], "raw": []}
    async with (
        small(folder / "rule") as house,
        bus_of(house.stack.endpoints) as rule,
        direct(folder / "faststream", "faststream") as faststream,
        direct(folder / "raw", "raw") as raw,
    ):
        buses = {"rule": rule, "faststream": faststream, "raw": raw}
        for bus in buses.values():
            await asyncio.gather(*(bus.task() for _ in range(IN_FLIGHT)))
        for number in range(1, RUNS + 1):
            say(f"paths, run {number} of {RUNS}")
            for name, bus in buses.items():
                runs[name].append(await bus.run(tasks))
            report.note_load()

    def of(name: str, what: str) -> tuple[float, ...]:
        match what:
            case "hop":
                return tuple(p50(flow.hops_ms) for flow in runs[name])
            case "p50":
                return tuple(p50(flow.paths_ms) for flow in runs[name])
            case "p99":
                return tuple(p99(flow.paths_ms) for flow in runs[name])
            case _:
                return tuple(flow.tasks_s for flow in runs[name])

    rule, limit = partial(of, "rule"), partial(of, "faststream")
    report.measures += [
        Measure("hop p50, the rule / direct handlers, one task in flight", "ms", rule("hop"), 4.0, limit("hop")),
        Measure("submitted to completed p50 / direct, one in flight", "ms", rule("p50"), 5.0, limit("p50")),
        Measure("submitted to completed p99 / its p50", "ms", rule("p99"), 3.0, rule("p50")),
        Measure("tasks/s at 50 in flight, the rule / direct", "/s", rule("many"), 0.25, limit("many"), floor=True),
        Measure("FastStream handlers / raw nats-py", "/s", limit("many"), 0.7, of("raw", "many"), floor=True),
    ]


async def ask(told: Endpoints, chunks: int, report: Report) -> None:
    """Distinct questions over so many chunks, one at a time."""
    services = names(chunks)
    headers = {"Authorization": f"Bearer {told.token}"}
    async with httpx.AsyncClient(base_url=told.http, headers=headers, timeout=600) as http:
        made = await ingest(http, PROJECT, services)
        say(f"{made} chunks")
    asked = random.Random(5).sample(services, QUESTIONS * RUNS + 5)
    took: list[float] = []
    answered = 0
    async with bus_of(told) as bus:
        for name in asked[:5]:
            await bus.task(question(name))
        for run in range(RUNS):
            alone = []
            for name in asked[5 + run * QUESTIONS : 5 + (run + 1) * QUESTIONS]:
                seen = await bus.task(question(name))
                alone.append(seen[-1][1] * 1000)
                answered += seen[-1][0] == TaskCompleted.TYPE
            took.append(p50(alone))
            report.note_load()
    name = f"a distinct offline question over {made} chunks, p50 ({answered} of {QUESTIONS * RUNS} answered)"
    report.measures.append(Measure(name, "ms", tuple(took), 60.0))


def pss_mb(pid: int) -> float:
    """What a process and all below it hold of memory, shared pages counted in parts."""
    total = 0
    for each in {pid, *descendants(pid)}:
        try:
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def house(data_dir: Path, chunks: int, report: Report) -> None:
    """The whole house as a person starts it: questions, then warm starts and its memory when idle."""
    starts, sizes = [], []
    up(data_dir, listening=Listening(http_port=0), detach=True)
    try:
        if chunks:
            bus.run(ask(read_endpoints(data_dir), chunks, report))
        for number in range(1, RUNS + 1):
            say(f"start, run {number} of {RUNS}")
            down(data_dir)
            began = time.perf_counter()
            up(data_dir, listening=Listening(http_port=0), detach=True)
            starts.append(time.perf_counter() - began)
            supervisor = read_state(data_dir / "state.json").supervisor
            assert supervisor is not None
            time.sleep(5)
            sizes.append(pss_mb(supervisor.pid))
            report.note_load()
    finally:
        down(data_dir)
    report.measures += [
        Measure("warm start until ready", "s", tuple(starts), 15.0),
        Measure("PSS of all processes, idle", "MB", tuple(sizes), 700.0),
    ]


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=300, help="how many tasks at 50 in flight, in each run")
    parser.add_argument("--chunks", type=int, default=5_000, help="how many chunks to ask about; 0 asks nothing")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    quiet_logs()
    stop_when_told()
    report = Report("flow")
    with tempfile.TemporaryDirectory(prefix="counterpoint-bench-") as folder:
        os.chmod(folder, 0o755)
        bus.run(paths(Path(folder), given.tasks, report))
        say(report.as_text())
        house(Path(folder) / "house", given.chunks, report)
    report.show()


if __name__ == "__main__":
    main()

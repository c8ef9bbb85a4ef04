"""`counterpoint bench flow`: tasks through the whole path, beside handlers that publish the same messages directly.

    python -m counterpoint.bench.flow [--json] [--tasks 300] [--chunks 5000]

Stub services stand in where only the path is measured. Questions and start times are those of all five services.
"""

import asyncio
import json
import os
import random
import sys
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

from counterpoint import bus
from counterpoint.bench.bench_stack import bench_stack
from counterpoint.bench.command_line import bench_folder, bench_parser
from counterpoint.bench.direct_handlers import PASSWORD, PROJECT, USER
from counterpoint.bench.processes import tree_pss_mb
from counterpoint.bench.report import BenchReport, Measurement, p50, p99, progress
from counterpoint.bench.service_documents import ingest_services, port_question, service_names
from counterpoint.bus.provision import provision
from counterpoint.local.endpoints import Endpoints, read_endpoints
from counterpoint.local.listen_addresses import ListenAddresses
from counterpoint.local.nats import run_nats
from counterpoint.local.state_file import read_state
from counterpoint.local.up import down, up
from counterpoint.proto import subjects
from counterpoint.proto.ids import new_id
from counterpoint.proto.tasks import TaskCompleted, TaskEscalated

RUNS = 3
IN_FLIGHT = 50
ALONE = 60
QUESTIONS = 40
_ENDS = (TaskCompleted.TYPE, TaskEscalated.TYPE)


@dataclass(frozen=True)
class FlowRun:
    """One run: hops and whole paths of single tasks in milliseconds, and tasks per second with many in flight."""

    hops_ms: list[float]
    paths_ms: list[float]
    tasks_s: float


class BusClient:
    """Client that submits tasks and records when each of their messages is seen."""

    def __init__(self, publisher: Client, observer: Client) -> None:
        self._publisher = publisher
        self._observer = observer
        self._messages: dict[str, list[tuple[str, float]]] = {}
        self._ended: dict[str, asyncio.Future[None]] = {}

    async def open(self) -> None:
        """Subscribe to the messages of the project."""
        await self._observer.subscribe(subjects.live_kind("tasks", PROJECT), cb=self._message)
        await self._observer.flush()

    async def task(self, description: str = "a stub") -> list[tuple[str, float]]:
        """Submit a task and wait for its end. Return message types with the seconds from submission to each."""
        task_id = new_id()
        messages = self._messages[task_id] = []
        ended = self._ended[task_id] = asyncio.get_running_loop().create_future()
        body = {"task_id": task_id, "kind": "question", "description": description}
        began = time.perf_counter()
        await self._publisher.jetstream().publish(
            subjects.of("counterpoint.task.submit.v1", PROJECT),
            json.dumps(body).encode(),
            headers={"Nats-Msg-Id": task_id},
        )
        await asyncio.wait_for(ended, 60)
        del self._messages[task_id], self._ended[task_id]
        return [(message_type, at - began) for message_type, at in messages]

    async def run(self, tasks: int) -> FlowRun:
        """Run `ALONE` tasks one at a time, then `tasks` with `IN_FLIGHT` at once."""
        hops: list[float] = []
        paths: list[float] = []
        for _ in range(ALONE):
            at = 0.0
            for message_type, elapsed_s in await self.task():
                if message_type.startswith("counterpoint.task.") and message_type != "counterpoint.task.submitted.v1":
                    hops.append((elapsed_s - at) * 1000)
                    at = elapsed_s
            paths.append(at * 1000)
        slots = asyncio.Semaphore(IN_FLIGHT)

        async def one() -> None:
            async with slots:
                await self.task()

        began = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(tasks)))
        return FlowRun(hops, paths, tasks / (time.perf_counter() - began))

    async def _message(self, message: Msg) -> None:
        at, headers = time.perf_counter(), message.headers or {}
        messages = self._messages.get(headers.get("ce-correlationid", ""))
        if messages is None:
            return
        messages.append((headers["ce-type"], at))
        if headers["ce-type"] in _ENDS:
            self._ended[headers["ce-correlationid"]].set_result(None)


@asynccontextmanager
async def bus_client(endpoints: Endpoints) -> AsyncIterator[BusClient]:
    """Connect as the publisher and the observer of a running stack."""
    clients = []
    for login in (endpoints.users["publisher"], endpoints.users["observer"]):
        inbox = login.inbox_prefix.encode()
        clients.append(await nats.connect(endpoints.nats, user=login.user, password=login.password, inbox_prefix=inbox))
    bus = BusClient(*clients)
    await bus.open()
    try:
        yield bus
    finally:
        for client in clients:
            await client.close()


@asynccontextmanager
async def direct_client(folder: Path, kind: str) -> AsyncIterator[BusClient]:
    """Run a NATS server with three services of `direct_handlers` of one kind."""
    async with run_nats(folder, f'authorization {{ user: {USER}, password: "{PASSWORD}" }}') as server:
        await provision(server.url, USER, PASSWORD)
        services = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-m", "counterpoint.bench.direct_handlers", kind, name, server.url
            )
            for name in ("router", "manager", "developer")
        ]
        client = await nats.connect(server.url, user=USER, password=PASSWORD)
        bus = BusClient(client, client)
        await bus.open()
        try:
            await bus.task()
            yield bus
        finally:
            await client.close()
            for service in services:
                service.kill()
                await service.wait()


async def measure_paths(folder: Path, tasks: int, report: BenchReport) -> None:
    """Measure the stack, direct handlers on FastStream, and direct handlers on nats-py, in turn."""
    runs: dict[str, list[FlowRun]] = {"service": [], "faststream": [], "raw": []}
    async with (
        bench_stack(folder / "service") as bench,
        bus_client(bench.stack.endpoints) as service,
        direct_client(folder / "faststream", "faststream") as faststream,
        direct_client(folder / "raw", "raw") as raw,
    ):
        buses = {"service": service, "faststream": faststream, "raw": raw}
        for each in buses.values():
            await asyncio.gather(*(each.task() for _ in range(IN_FLIGHT)))
        for number in range(1, RUNS + 1):
            progress(f"paths, run {number} of {RUNS}")
            for name, each in buses.items():
                runs[name].append(await each.run(tasks))
            report.note_load()

    def values(name: str, kind: str) -> tuple[float, ...]:
        match kind:
            case "hop":
                return tuple(p50(flow.hops_ms) for flow in runs[name])
            case "p50":
                return tuple(p50(flow.paths_ms) for flow in runs[name])
            case "p99":
                return tuple(p99(flow.paths_ms) for flow in runs[name])
            case _:
                return tuple(flow.tasks_s for flow in runs[name])

    service_runs, limit = partial(values, "service"), partial(values, "faststream")
    report.measures += [
        Measurement(
            "hop p50, the service / direct handlers, one task in flight", "ms", service_runs("hop"), 4.0, limit("hop")
        ),
        Measurement("submitted to completed p50 / direct, one in flight", "ms", service_runs("p50"), 5.0, limit("p50")),
        Measurement("submitted to completed p99 / its p50", "ms", service_runs("p99"), 3.0, service_runs("p50")),
        Measurement(
            "tasks/s at 50 in flight, the service / direct",
            "/s",
            service_runs("many"),
            0.25,
            limit("many"),
            at_least=True,
        ),
        Measurement(
            "FastStream handlers / raw nats-py", "/s", limit("many"), 0.7, values("raw", "many"), at_least=True
        ),
    ]


async def measure_questions(endpoints: Endpoints, chunks: int, report: BenchReport) -> None:
    """Measure distinct questions over `chunks` chunks, one at a time."""
    services = service_names(chunks)
    headers = {"Authorization": f"Bearer {endpoints.token}"}
    async with httpx.AsyncClient(base_url=endpoints.http, headers=headers, timeout=600) as http:
        chunk_count = await ingest_services(http, PROJECT, services)
        progress(f"{chunk_count} chunks")
    sample = random.Random(5).sample(services, QUESTIONS * RUNS + 5)
    medians: list[float] = []
    answered = 0
    async with bus_client(endpoints) as bus:
        for name in sample[:5]:
            await bus.task(port_question(name))
        for run in range(RUNS):
            alone = []
            for name in sample[5 + run * QUESTIONS : 5 + (run + 1) * QUESTIONS]:
                messages = await bus.task(port_question(name))
                alone.append(messages[-1][1] * 1000)
                answered += messages[-1][0] == TaskCompleted.TYPE
            medians.append(p50(alone))
            report.note_load()
    name = f"a distinct offline question over {chunk_count} chunks, p50 ({answered} of {QUESTIONS * RUNS} answered)"
    report.measures.append(Measurement(name, "ms", tuple(medians), 60.0))


def measure_starts(data_dir: Path, chunks: int, report: BenchReport) -> None:
    """Measure all services as `counterpoint up` starts them: questions, warm starts, and memory when idle."""
    starts, sizes = [], []
    up(data_dir, addresses=ListenAddresses(http_port=0), detach=True)
    try:
        if chunks:
            bus.run(measure_questions(read_endpoints(data_dir), chunks, report))
        for number in range(1, RUNS + 1):
            progress(f"start, run {number} of {RUNS}")
            down(data_dir)
            began = time.perf_counter()
            up(data_dir, addresses=ListenAddresses(http_port=0), detach=True)
            starts.append(time.perf_counter() - began)
            supervisor = read_state(data_dir / "state.json").supervisor
            assert supervisor is not None
            time.sleep(5)
            sizes.append(tree_pss_mb(supervisor.pid))
            report.note_load()
    finally:
        down(data_dir)
    report.measures += [
        Measurement("warm start until ready", "s", tuple(starts), 15.0),
        Measurement("PSS of all processes, idle", "MB", tuple(sizes), 700.0),
    ]


def main() -> None:
    """Run the command line."""
    parser = bench_parser(__doc__)
    parser.add_argument("--tasks", type=int, default=300, help="tasks per run with 50 in flight")
    parser.add_argument("--chunks", type=int, default=5_000, help="chunks to ask about; 0 skips the questions")
    args = parser.parse_args()
    report = BenchReport("flow")
    with bench_folder("flow") as folder:
        os.chmod(folder, 0o755)
        bus.run(measure_paths(folder, args.tasks, report))
        progress(report.as_text())
        measure_starts(folder / "data", args.chunks, report)
    report.show()


if __name__ == "__main__":
    main()

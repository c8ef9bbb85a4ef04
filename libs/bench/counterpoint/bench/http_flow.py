"""`counterpoint bench flow` on a running stack: measurements through its HTTP API.

    COUNTERPOINT_TOKEN=... python -m counterpoint.bench.http_flow URL [--health URL ...] [--json] [--tasks 300]
        [--chunks 5000]

It ingests its own documents into a new project, which stays. The services of the stack answer, so there is no limit
beside the figures: `counterpoint.bench.flow` measures those that need one.
"""

import asyncio
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from counterpoint.bench.command_line import bench_parser
from counterpoint.bench.report import BenchReport, Measurement, exit_on_sigterm, p50, p99, progress
from counterpoint.bench.service_documents import ingest_services, port_question, service_names
from counterpoint.proto.ids import new_id

RUNS = 3
WAIT_S = 30
NOT_REACHABLE = 3
"""Exit code of every command when the stack does not answer."""
WARM = 5
FEW = 50
"""Chunks of the small project in which whole paths are measured."""


@dataclass(frozen=True)
class FlowSize:
    """Amounts per run: single tasks, tasks with `in_flight` at once, chunks, and questions over them."""

    alone: int = 60
    tasks: int = 300
    in_flight: int = 50
    chunks: int = 5_000
    questions: int = 40


class HttpProject:
    """Client that asks questions in one project over HTTP."""

    def __init__(self, http: httpx.AsyncClient, project: str) -> None:
        self._http = http
        self.project = project

    async def ingest(self, services: list[str]) -> int:
        """Ingest the documents about these services; return the number of chunks."""
        return await ingest_services(self._http, self.project, services)

    async def ask(self, service: str) -> tuple[float, bool]:
        """Submit a question and wait for its end. Return the milliseconds, and whether it was answered.

        Raises `TimeoutError` if it does not end within `WAIT_S`, `httpx.HTTPStatusError` if it is not accepted.
        """
        body = {"kind": "question", "description": port_question(service)}
        began = time.perf_counter()
        response = await self._http.post(
            "/v1/tasks", params={"project": self.project}, json=body, headers={"Prefer": f"wait={WAIT_S}"}
        )
        took_ms = (time.perf_counter() - began) * 1000
        response.raise_for_status()
        if response.status_code != httpx.codes.OK:
            raise TimeoutError(f"a task has not ended after {WAIT_S} s")
        return took_ms, response.json()["state"] == "completed"

    async def completed_ms(self, service: str) -> float:
        """Return the milliseconds from submitted to completed. Raises `ValueError` if it was not answered."""
        took_ms, answered = await self.ask(service)
        if not answered:
            raise ValueError("a question that the documents answer was not answered")
        return took_ms


async def measure_paths(client: HttpProject, size: FlowSize, report: BenchReport) -> None:
    """Measure whole tasks on a small project, one at a time and then many."""
    services = service_names(FEW)
    await client.ingest(services)
    ask = random.Random(6)
    for service in ask.choices(services, k=WARM):
        await client.completed_ms(service)
    alone: list[list[float]] = []
    many: list[float] = []
    for number in range(1, RUNS + 1):
        progress(f"paths, run {number} of {RUNS}")
        alone.append([await client.completed_ms(service) for service in ask.choices(services, k=size.alone)])
        slots = asyncio.Semaphore(size.in_flight)

        async def one(service: str, slots: asyncio.Semaphore = slots) -> None:
            async with slots:
                await client.completed_ms(service)

        began = time.perf_counter()
        await asyncio.gather(*(one(service) for service in ask.choices(services, k=size.tasks)))
        many.append(size.tasks / (time.perf_counter() - began))
        report.note_load()
    medians, worst = tuple(map(p50, alone)), tuple(map(p99, alone))
    report.measures += [
        Measurement("submitted to completed p50, one in flight", "ms", medians, None),
        Measurement("submitted to completed p99 / its p50", "ms", worst, 3.0, medians),
        Measurement(f"tasks/s at {size.in_flight} in flight", "/s", tuple(many), None, at_least=True),
    ]


async def measure_questions(client: HttpProject, size: FlowSize, report: BenchReport) -> None:
    """Measure distinct questions over `size.chunks` chunks, one at a time."""
    services = service_names(size.chunks)
    chunk_count = await client.ingest(services)
    progress(f"{chunk_count} chunks")
    sample = random.Random(5).sample(services[FEW:], WARM + RUNS * size.questions)
    for service in sample[:WARM]:
        await client.ask(service)
    medians: list[float] = []
    answered = 0
    for run in range(RUNS):
        progress(f"questions, run {run + 1} of {RUNS}")
        results = [await client.ask(service) for service in sample[WARM + run * size.questions :][: size.questions]]
        medians.append(p50([took_ms for took_ms, _ in results]))
        answered += sum(is_answered for _, is_answered in results)
        report.note_load()
    name = (
        f"a distinct offline question over {chunk_count} chunks, p50 ({answered} of {RUNS * size.questions} answered)"
    )
    report.measures.append(Measurement(name, "ms", tuple(medians), 60.0))


async def check_ready(http: httpx.AsyncClient, health: Sequence[str]) -> None:
    """Check that every service is ready. Raises `httpx.HTTPError` for one that is not."""
    for service in health:
        (await http.get(f"{service}/readyz")).raise_for_status()


async def measure_stack(url: str, token: str, health: Sequence[str], size: FlowSize) -> BenchReport:
    """Measure the stack at `url`. Its services are checked before and after. Raises `httpx.HTTPError`."""
    report = BenchReport("flow")
    limits = httpx.Limits(max_connections=size.in_flight, max_keepalive_connections=size.in_flight)
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx.AsyncClient(trust_env=False) as probe,
        httpx.AsyncClient(base_url=url, headers=headers, timeout=600, limits=limits, trust_env=False) as http,
    ):
        client = HttpProject(http, f"bench-{new_id()}")
        await check_ready(probe, health)
        progress(f"project {client.project} of {url}: it and the documents ingested into it are kept")
        await measure_paths(client, size, report)
        await measure_questions(client, size, report)
        await check_ready(probe, health)
    return report


def main() -> None:
    """Run the command line."""
    parser = bench_parser(__doc__)
    parser.add_argument("url", help="URL of the HTTP API")
    parser.add_argument("--health", nargs="*", default=[], help="health URLs of services")
    parser.add_argument("--tasks", type=int, default=FlowSize.tasks, help="tasks per run with 50 in flight")
    parser.add_argument("--chunks", type=int, default=FlowSize.chunks, help="chunks to ask about")
    args = parser.parse_args()
    exit_on_sigterm()
    size = FlowSize(tasks=args.tasks, chunks=args.chunks)
    try:
        report = asyncio.run(measure_stack(args.url, os.environ["COUNTERPOINT_TOKEN"], args.health, size))
    except httpx.TransportError as away:
        progress(f"no response from {args.url} ({away})")
        sys.exit(NOT_REACHABLE)
    except httpx.HTTPStatusError as refused:
        progress(f"{refused.request.url}: HTTP {refused.response.status_code}")
        sys.exit(1)
    report.show()


if __name__ == "__main__":
    main()

"""`bench flow` on a running stack that was named: what can be measured from outside, by its HTTP API.

    COUNTERPOINT_TOKEN=... python tests/bench/outside.py URL [--health URL ...] [--json] [--tasks 300] [--chunks 5000]

It works in a project of its own, which stays there, and ingests its own documents into it. The stack's own services
answer here, and there is nothing beside them to compare with: what needs a limit is measured by `flow.py`.
"""

import argparse
import asyncio
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.knowledge import ingest, names, question
from bench.measure import Measure, Report, p50, p99, say, stop_when_told

from counterpoint.proto.ids import new_id

RUNS = 3
WAIT_S = 30
NOT_REACHABLE = 3
"""The exit code of every command that finds nobody there."""
WARM = 5
FEW = 50
"""The chunks of the small project that whole paths are measured over."""


@dataclass(frozen=True)
class Size:
    """How much of each: tasks one at a time and many at a time, chunks, and questions over them; each in every run."""

    alone: int = 60
    tasks: int = 300
    in_flight: int = 50
    chunks: int = 5_000
    questions: int = 40


class Outside:
    """Somebody with a token who asks questions in one project."""

    def __init__(self, http: httpx.AsyncClient, project: str) -> None:
        self._http = http
        self.project = project

    async def ingest(self, services: list[str]) -> int:
        """Hand in documents about these services; how many chunks they became."""
        return await ingest(self._http, self.project, services)

    async def ask(self, service: str) -> tuple[float, bool]:
        """From submitting a question to its end: how many milliseconds it took, and whether it was answered.

        Raises `TimeoutError` when neither comes in time, `httpx.HTTPStatusError` when it is not accepted.
        """
        body = {"kind": "question", "description": question(service)}
        began = time.perf_counter()
        answer = await self._http.post(
            "/v1/tasks", params={"project": self.project}, json=body, headers={"Prefer": f"wait={WAIT_S}"}
        )
        took_ms = (time.perf_counter() - began) * 1000
        answer.raise_for_status()
        if answer.status_code != httpx.codes.OK:
            raise TimeoutError(f"a task has not ended after {WAIT_S} s")
        return took_ms, answer.json()["state"] == "completed"

    async def completed_ms(self, service: str) -> float:
        """From submitted to completed. Raises `ValueError` when it ended otherwise."""
        took_ms, answered = await self.ask(service)
        if not answered:
            raise ValueError("a question that the documents answer was not answered")
        return took_ms


async def paths(outside: Outside, size: Size, report: Report) -> None:
    """Whole tasks, one at a time and then many, on a small project."""
    services = names(FEW)
    await outside.ingest(services)
    ask = random.Random(6)
    for service in ask.choices(services, k=WARM):
        await outside.completed_ms(service)
    alone: list[list[float]] = []
    many: list[float] = []
    for number in range(1, RUNS + 1):
        say(f"paths, run {number} of {RUNS}")
        alone.append([await outside.completed_ms(service) for service in ask.choices(services, k=size.alone)])
        places = asyncio.Semaphore(size.in_flight)

        async def one(service: str, places: asyncio.Semaphore = places) -> None:
            async with places:
                await outside.completed_ms(service)

        began = time.perf_counter()
        await asyncio.gather(*(one(service) for service in ask.choices(services, k=size.tasks)))
        many.append(size.tasks / (time.perf_counter() - began))
        report.note_load()
    halves, worst = tuple(map(p50, alone)), tuple(map(p99, alone))
    report.measures += [
        Measure("submitted to completed p50, one in flight", "ms", halves, None),
        Measure("submitted to completed p99 / its p50", "ms", worst, 3.0, halves),
        Measure(f"tasks/s at {size.in_flight} in flight", "/s", tuple(many), None, floor=True),
    ]


async def questions(outside: Outside, size: Size, report: Report) -> None:
    """Distinct questions over so many chunks, one at a time."""
    services = names(size.chunks)
    made = await outside.ingest(services)
    say(f"{made} chunks")
    asked = random.Random(5).sample(services[FEW:], WARM + RUNS * size.questions)
    for service in asked[:WARM]:
        await outside.ask(service)
    halves: list[float] = []
    answered = 0
    for run in range(RUNS):
        say(f"questions, run {run + 1} of {RUNS}")
        taken = [await outside.ask(service) for service in asked[WARM + run * size.questions :][: size.questions]]
        halves.append(p50([took_ms for took_ms, _ in taken]))
        answered += sum(was for _, was in taken)
        report.note_load()
    name = f"a distinct offline question over {made} chunks, p50 ({answered} of {RUNS * size.questions} answered)"
    report.measures.append(Measure(name, "ms", tuple(halves), 60.0))


async def ready(http: httpx.AsyncClient, health: Sequence[str]) -> None:
    """See that every service is ready. Raises `httpx.HTTPError` for one that is not."""
    for service in health:
        (await http.get(f"{service}/readyz")).raise_for_status()


async def measured(url: str, token: str, health: Sequence[str], size: Size) -> Report:
    """The report on the stack at `url`; its services are ready before and after. Raises `httpx.HTTPError` besides."""
    report = Report("flow")
    limits = httpx.Limits(max_connections=size.in_flight, max_keepalive_connections=size.in_flight)
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx.AsyncClient(trust_env=False) as probe,
        httpx.AsyncClient(base_url=url, headers=headers, timeout=600, limits=limits, trust_env=False) as http,
    ):
        outside = Outside(http, f"bench-{new_id()}")
        await ready(probe, health)
        say(f"project {outside.project} of {url}; it stays, with the documents that are ingested into it now")
        await paths(outside, size, report)
        await questions(outside, size, report)
        await ready(probe, health)
    return report


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="the HTTP API")
    parser.add_argument("--health", nargs="*", default=[], help="where services say whether they are ready")
    parser.add_argument("--tasks", type=int, default=Size.tasks, help="how many tasks at 50 in flight, in each run")
    parser.add_argument("--chunks", type=int, default=Size.chunks, help="how many chunks to ask about")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    stop_when_told()
    size = Size(tasks=given.tasks, chunks=given.chunks)
    try:
        report = asyncio.run(measured(given.url, os.environ["COUNTERPOINT_TOKEN"], given.health, size))
    except httpx.TransportError as away:
        say(f"no answer at {given.url} ({away})")
        sys.exit(NOT_REACHABLE)
    except httpx.HTTPStatusError as refused:
        say(f"{refused.request.url}: HTTP {refused.response.status_code}")
        sys.exit(1)
    report.show()


if __name__ == "__main__":
    main()

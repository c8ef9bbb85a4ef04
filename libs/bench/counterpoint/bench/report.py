"""Reports of benchmarks: every run, medians, ratios, targets, and the load of the machine beside the runs."""

import asyncio
import json
import logging
import os
import platform
import signal
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import structlog

MAX_ATTEMPTS = 120


def machine_facts() -> dict[str, Any]:
    """Return what a figure depends on: the number of processors, the version of Python, and the load."""
    return {"cpus": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()[0]}


class RetryTransport(httpx.AsyncHTTPTransport):
    """HTTP transport that repeats a request refused with 503 after the seconds of its `Retry-After`."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, at most `MAX_ATTEMPTS` times."""
        for _ in range(MAX_ATTEMPTS):
            response = await super().handle_async_request(request)
            if response.status_code != 503:
                break
            await response.aclose()
            await asyncio.sleep(float(response.headers.get("retry-after", 1)))
        return response


async def settled(http: httpx.AsyncClient, task: dict[str, Any], project: str) -> dict[str, Any]:
    """Return a task when it has ended or waits for input."""
    while task["state"] in ("submitted", "working"):
        answer = await http.get(f"/v1/tasks/{task['task_id']}", params={"project": project, "wait": "30"})
        task = answer.raise_for_status().json()
    return task


@dataclass(frozen=True)
class Measurement:
    """One row of a report.

    `runs` and `limit_runs` hold one number per run. `value` is the ratio of their medians, or the median of `runs`
    without a limit. `target` is an upper bound, or a lower bound with `at_least`; None for a row without a target.
    """

    name: str
    unit: str
    runs: tuple[float, ...]
    target: float | None
    limit_runs: tuple[float, ...] = ()
    at_least: bool = False

    @property
    def value(self) -> float:
        """Number to compare with the target."""
        median = statistics.median(self.runs)
        return median / statistics.median(self.limit_runs) if self.limit_runs else median

    @property
    def met(self) -> bool | None:
        """True if the target is met; None without a target."""
        if self.target is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target


@dataclass
class BenchReport:
    """Rows of one benchmark, and the one-minute load beside each run."""

    bench: str
    measures: list[Measurement] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)

    def note_load(self) -> None:
        """Record the one-minute load."""
        self.loads.append(os.getloadavg()[0])

    def as_json(self) -> str:
        """Return the report as JSON."""
        rows: list[dict[str, Any]] = [
            {
                "name": row.name,
                "unit": row.unit,
                "runs": row.runs,
                "median": statistics.median(row.runs),
                "limit_runs": row.limit_runs or None,
                "limit_median": statistics.median(row.limit_runs) if row.limit_runs else None,
                "value": row.value,
                "target": row.target,
                "target_is": "at least" if row.at_least else "at most",
                "met": row.met,
            }
            for row in self.measures
        ]
        machine = machine_facts() | {"load": self.loads}
        return json.dumps({"bench": self.bench, "machine": machine, "measures": rows}, indent=1)

    def as_text(self) -> str:
        """Return the report as a table."""
        loads = " ".join(f"{load:.1f}" for load in self.loads)
        lines = [f"bench {self.bench}: {os.cpu_count()} cpus, load beside the runs {loads}"]
        for row in self.measures:
            lines.append(f"\n{row.name}\n  {row.value:.3g}{_against_target(row)}")
            lines.append(f"  ours  {_listed(row.runs)} {row.unit}")
            if row.limit_runs:
                lines.append(f"  limit {_listed(row.limit_runs)} {row.unit}")
        return "\n".join(lines)

    def show(self) -> None:
        """Print JSON with `--json` on the command line, else the table."""
        print(self.as_json() if "--json" in sys.argv[1:] else self.as_text())


def p50(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)


async def median_ms(call: Callable[[], Awaitable[object]], samples: int) -> float:
    """Await a call repeatedly, one after the other, and return the median in milliseconds."""
    durations = []
    for _ in range(samples):
        began = time.perf_counter()
        await call()
        durations.append((time.perf_counter() - began) * 1000)
    return p50(durations)


def p99(values: Sequence[float]) -> float:
    """Return the 99th percentile."""
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]


def progress(text: str) -> None:
    """Print a line of progress to standard error."""
    print(text, file=sys.stderr, flush=True)


def log_warnings_only() -> None:
    """Log warnings and errors only, to standard error. Standard output holds the report alone."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def exit_on_sigterm() -> None:
    """End a benchmark on SIGTERM as on Ctrl-C, so that everything it started is stopped."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def _against_target(row: Measurement) -> str:
    if row.target is None:
        return f" {row.unit}"
    return f" (target {'>=' if row.at_least else '<='} {row.target:g}) {'met' if row.met else 'MISSED'}"


def _listed(values: Sequence[float]) -> str:
    return " ".join(f"{value:.3g}" for value in values) + f"  median {statistics.median(values):.3g}"

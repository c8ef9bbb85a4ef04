"""Measures: what was run, every raw run, the medians, the ratio and its target, and how busy the machine was."""

import asyncio
import json
import logging
import os
import platform
import signal
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import structlog

REFUSALS = 120


class Patient(httpx.AsyncHTTPTransport):
    """A transport that asks again what a busy house refuses with 503, after the seconds that it names."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request, at most `REFUSALS` times."""
        for _ in range(REFUSALS):
            response = await super().handle_async_request(request)
            if response.status_code != 503:
                break
            await response.aclose()
            await asyncio.sleep(float(response.headers.get("retry-after", 1)))
        return response


@dataclass(frozen=True)
class Measure:
    """One row. `ours` and `limit` hold one number a run; the ratio is that of their medians.

    Without a `limit` the number itself has the target; without a target it is only shown. `floor`: more is better.
    """

    name: str
    unit: str
    ours: tuple[float, ...]
    target: float | None
    limit: tuple[float, ...] = ()
    floor: bool = False

    @property
    def value(self) -> float:
        """What is held against the target."""
        ours = statistics.median(self.ours)
        return ours / statistics.median(self.limit) if self.limit else ours

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        if self.target is None:
            return None
        return self.value >= self.target if self.floor else self.value <= self.target


@dataclass
class Report:
    """All rows of one benchmark, and the load beside each run."""

    bench: str
    measures: list[Measure] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)

    def note_load(self) -> None:
        """The one-minute load now."""
        self.loads.append(os.getloadavg()[0])

    def as_json(self) -> str:
        """Everything."""
        rows: list[dict[str, Any]] = [
            {
                "name": row.name,
                "unit": row.unit,
                "runs": row.ours,
                "median": statistics.median(row.ours),
                "limit_runs": row.limit or None,
                "limit_median": statistics.median(row.limit) if row.limit else None,
                "value": row.value,
                "target": row.target,
                "target_is": "at least" if row.floor else "at most",
                "met": row.met,
            }
            for row in self.measures
        ]
        machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "load": self.loads}
        return json.dumps({"bench": self.bench, "machine": machine, "measures": rows}, indent=1)

    def as_text(self) -> str:
        """A table for people."""
        loads = " ".join(f"{load:.1f}" for load in self.loads)
        lines = [f"bench {self.bench}: {os.cpu_count()} cpus, load beside the runs {loads}"]
        for row in self.measures:
            lines.append(f"\n{row.name}\n  {row.value:.3g}{_judged(row)}")
            lines.append(f"  ours  {_runs(row.ours)} {row.unit}")
            if row.limit:
                lines.append(f"  limit {_runs(row.limit)} {row.unit}")
        return "\n".join(lines)

    def show(self) -> None:
        """JSON with `--json` on the command line, else the table."""
        print(self.as_json() if "--json" in sys.argv[1:] else self.as_text())


def p50(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)


def p99(values: Sequence[float]) -> float:
    """The value that one in a hundred exceeds."""
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]


def say(what: str) -> None:
    """How far it has come, on standard error."""
    print(what, file=sys.stderr, flush=True)


def quiet_logs() -> None:
    """Log events from warnings up, on standard error: standard output holds the report alone."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def stop_when_told() -> None:
    """SIGTERM ends a benchmark as Ctrl-C does: what it started is stopped."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def _judged(row: Measure) -> str:
    if row.target is None:
        return f" {row.unit}"
    return f" (target {'>=' if row.floor else '<='} {row.target:g}) {'met' if row.met else 'MISSED'}"


def _runs(values: Sequence[float]) -> str:
    return " ".join(f"{value:.3g}" for value in values) + f"  median {statistics.median(values):.3g}"

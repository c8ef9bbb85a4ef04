"""`counterpoint bench roll`: every service replaced, one after the other, while tasks come in at a constant rate.

    python -m counterpoint.bench.roll [--json] [--rate 20]

`counterpoint.bench.traffic` says what is an answer. The order of the services is another one in each run.
"""

import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from counterpoint.bench.command_line import bench_parser
from counterpoint.bench.report import BenchReport, Measurement, exit_on_sigterm, log_warnings_only, progress
from counterpoint.bench.traffic import TrafficCount, traffic
from counterpoint.local.service import SERVICES
from counterpoint.local.stack import Stack

RUNS, IN_FLIGHT = 3, 40
"""Rolls, and tasks at once at most: a machine that cannot keep up with the rate gets fewer."""
_BESIDE = 20
"""Tasks that come in before the first service is replaced, and after the last one."""


async def roll(stack: Stack, rate: float, seed: int) -> tuple[TrafficCount, float]:
    """Replace every service of a running stack in an order of the seed. Return the count and the seconds it took."""
    order = random.Random(seed).sample(SERVICES, len(SERVICES))
    async with traffic(stack.endpoints, f"roll-{seed}", rate, IN_FLIGHT) as tasks:
        await _more(tasks.began, _BESIDE)
        began = time.monotonic()
        for name in order:
            await stack.replace(name)
            progress(f"{name} replaced after {time.monotonic() - began:.1f} s, {tasks.began()} tasks")
        took_s = time.monotonic() - began
        await _more(tasks.began, _BESIDE)
    for problem in (*tasks.count.lost, *tasks.count.doubled, *tasks.count.unanswered, *tasks.count.dead):
        progress(problem)
    return tasks.count, took_s


async def _more(began: Callable[[], int], tasks: int) -> None:
    """Wait until so many more tasks have come in."""
    until = began() + tasks
    while began() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


async def measure_roll(rate: float, runs: int, report: BenchReport) -> None:
    """Run a stack and roll it several times."""
    with tempfile.TemporaryDirectory(prefix="counterpoint-bench-") as folder:
        os.chmod(folder, 0o755)
        stack = Stack(Path(folder) / "data", http_port=0)
        await stack.start()
        try:
            results = []
            for seed in range(1, runs + 1):
                results.append(await roll(stack, rate, seed))
                report.note_load()
        finally:
            await stack.stop()
    counts, seconds = [count for count, _ in results], tuple(took_s for _, took_s in results)

    def row(name: str, unit: str, values: list[float], target: float | None = None) -> None:
        report.measures.append(Measurement(name, unit, tuple(values), target))

    row(f"tasks submitted, up to {rate:g} a second", "", [count.tasks for count in counts])
    rates = (count.tasks / took_s for count, took_s in results)
    row("tasks a second, from the first to the last replacement, about", "/s", list(rates))
    row("lost", "", [len(count.lost) for count in counts], 0)
    row("doubled", "", [len(count.doubled) for count in counts], 0)
    row("requests without an answer", "", [len(count.unanswered) for count in counts], 0)
    row("dead letters", "", [len(count.dead) for count in counts], 0)
    row("audit log broken", "", [not count.verified for count in counts], 0)
    row("requests answered", "", [count.answers.total() for count in counts])
    for reason, target in {"error": 0, "broken": None, "refused": None, "timeout": None, "503": None}.items():
        row(f"requests sent again: {reason}", "", [count.retries[reason] for count in counts], target)
    row("longest time to an answer", "s", [count.longest_s for count in counts])
    row("a roll", "s", list(seconds))


def main() -> None:
    """Run the command line. Exit code 1 if anything was lost, doubled, dead or unanswered."""
    parser = bench_parser(__doc__)
    parser.add_argument("--rate", type=float, default=20.0, help="tasks a second")
    parser.add_argument("--runs", type=int, default=RUNS, help="rolls")
    args = parser.parse_args()
    log_warnings_only()
    exit_on_sigterm()
    report = BenchReport("roll")
    asyncio.run(measure_roll(args.rate, args.runs, report))
    report.show()
    sys.exit(0 if all(row.met is not False for row in report.measures) else 1)


if __name__ == "__main__":
    main()

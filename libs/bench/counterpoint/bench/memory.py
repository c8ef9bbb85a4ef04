"""`counterpoint bench memory`: sections about the memory service, each beside its physical limit where there is one.

python -m counterpoint.bench.memory [--json] [--full] [--only NAME ...]

The short version takes some minutes. `--full` measures up to a million items and a million audit leaves.
"""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from counterpoint import bus
from counterpoint.bench.command_line import bench_folder, bench_parser
from counterpoint.bench.report import BenchReport, progress
from counterpoint.bench.sections import (
    adds,
    as_of,
    filtered_search,
    idle_memory,
    policy_check,
    repeated_search,
    standalone,
    take_back,
)
from counterpoint.bench.sections.size import FULL, SHORT, SectionSize

Section = Callable[[Path, SectionSize, BenchReport], Awaitable[None]]

SECTIONS: dict[str, Section] = {
    "adds": adds.measure,
    "search": filtered_search.measure,
    "policy": policy_check.measure,
    "repeat": repeated_search.measure,
    "line": standalone.measure_line,
    "as-of": as_of.measure,
    "audit": standalone.measure_audit,
    "take-back": take_back.measure,
    "idle": idle_memory.measure,
}
"""Sections by name, in the order in which they are measured."""


async def run(folder: Path, names: Sequence[str], size: SectionSize) -> BenchReport:
    """Measure sections one after the other, each on a temporary stack of its own."""
    report = BenchReport("memory")
    for name in names:
        progress(f"section {name}")
        (folder / name).mkdir()
        await SECTIONS[name](folder / name, size, report)
    return report


def main() -> None:
    """Run the command line."""
    parser = bench_parser(__doc__)
    parser.add_argument("--only", action="append", choices=SECTIONS, help="measure this section only; repeatable")
    parser.add_argument("--full", action="store_true", help="measure all sizes")
    args = parser.parse_args()
    with bench_folder("memory") as folder:
        bus.run(run(folder, args.only or tuple(SECTIONS), FULL if args.full else SHORT)).show()


if __name__ == "__main__":
    main()

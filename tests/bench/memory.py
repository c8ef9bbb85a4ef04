"""`bench memory`: what memory promises, each beside its physical limit where there is one.

python tests/bench/memory.py [--json] [--full] [--only NAME ...]

The short version takes some minutes; `--full` takes more of everything, up to a million items and a million leaves.
"""

import argparse
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.measure import Report, quiet_logs, say, stop_when_told
from bench.sections import adds, again, idle, parts, past, search, taint, tax
from bench.sections.size import FULL, SHORT, Size

from counterpoint import bus

Section = Callable[[Path, Size, Report], Awaitable[None]]

SECTIONS: dict[str, Section] = {
    "adds": adds.measured,
    "search": search.measured,
    "tax": tax.measured,
    "again": again.measured,
    "line": parts.line_measured,
    "past": past.measured,
    "audit": parts.audit_measured,
    "taint": taint.measured,
    "idle": idle.measured,
}
"""By their names, in the order in which they are measured."""


async def run(folder: Path, names: Sequence[str], size: Size) -> Report:
    """These sections, one after the other, each on a throw-away stack of its own."""
    report = Report("memory")
    for name in names:
        say(f"section {name}")
        (folder / name).mkdir()
        await SECTIONS[name](folder / name, size, report)
    return report


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=SECTIONS, help="this section, instead of all; repeatable")
    parser.add_argument("--full", action="store_true", help="all sizes")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    quiet_logs()
    stop_when_told()
    with tempfile.TemporaryDirectory(prefix="counterpoint-bench-") as folder:
        bus.run(run(Path(folder), given.only or tuple(SECTIONS), FULL if given.full else SHORT)).show()


if __name__ == "__main__":
    main()

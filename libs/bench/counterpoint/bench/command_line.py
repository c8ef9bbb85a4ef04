"""The frame of the command line of a benchmark: its options, logs, signals and temporary folder."""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from counterpoint.bench.evaluation_sets import UnreadableSet
from counterpoint.bench.report import exit_on_sigterm, log_warnings_only


def bench_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the option `--json`, which the report reads. `description`: the docstring of the module."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    return parser


@contextmanager
def bench_folder(name: str) -> Iterator[Path]:
    """Log warnings only, stop on SIGTERM, and yield a folder that exists as long as the block.

    An unreadable set ends the command with its reason.
    """
    log_warnings_only()
    exit_on_sigterm()
    with tempfile.TemporaryDirectory(prefix="counterpoint-bench-") as folder:
        try:
            yield Path(folder)
        except UnreadableSet as unreadable:
            sys.exit(f"counterpoint bench {name}: {unreadable}")

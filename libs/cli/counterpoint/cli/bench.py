"""The command that measures: benchmarks live in the checkout, beside the tests."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import CommandError, Misused
from counterpoint.cli.session import Session

app = typer.Typer()

BENCHES = ("commit", "flow")


@command(app, "bench", Panel.OPERATE, "counterpoint bench commit --json")
def bench(session: Session, name: Annotated[str, typer.Argument(help=f"One of: {', '.join(BENCHES)}.")]) -> None:
    """Measure a throw-away stack against its physical limits; every raw run is printed with the load beside it.

    A missed target is reported, not an error: exit code 1 means that the benchmark itself failed.
    """
    if name not in BENCHES:
        raise Misused(f"there is no benchmark {name}; there are {', '.join(BENCHES)}")
    if session.url or session.data_dir:
        raise Misused("a benchmark measures a stack of its own, without --url and --data-dir")
    program = _folder() / f"{name}.py"
    os.execv(sys.executable, [sys.executable, str(program), *(["--json"] if session.json else [])])


def _folder() -> Path:
    """Where the benchmarks are. Raises `CommandError` where this is not the checkout."""
    for above in Path(__file__).resolve().parents:
        if (above / "tests" / "bench" / "measure.py").is_file():
            return above / "tests" / "bench"
    raise CommandError("benchmarks run from a checkout of the sources; this is an installed package without them")

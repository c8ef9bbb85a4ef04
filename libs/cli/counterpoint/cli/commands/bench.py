"""`counterpoint bench`: run a benchmark."""

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import CommandError, UsageError
from counterpoint.cli.session import CommandSession

PACKAGE = "counterpoint.bench"
OF_SETS = ("retrieval", "answer", "triage", "recognition", "models")
"""Benchmarks that need a folder of sets."""
BENCHES = ("commit", "flow", "load", "incidents", "agents", "front", "line", "memory", "roll", *OF_SETS)
ACCEPTED_BY: Mapping[str, tuple[str, ...]] = {
    "--type": ("retrieval", "answer"),
    "--k": ("retrieval",),
    "--fit": ("retrieval", "recognition"),
    "--with": ("recognition",),
    "--among": ("recognition",),
    "--full": ("memory",),
    "--only": ("memory",),
    "--model": ("models",),
    "--limit": ("models",),
    "--rate": ("load", "incidents", "roll"),
    "--seconds": ("load", "incidents"),
}
"""Options, and the benchmarks that accept each."""


@command("bench", Panel.OPERATE, "counterpoint bench commit --json")
def bench(
    session: CommandSession,
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(BENCHES)}.")],
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="DIR|MIX", help=f"Folder of sets for {', '.join(OF_SETS)}; file of a mix for load."),
    ] = None,
    type_: Annotated[
        str | None, typer.Option("--type", metavar="conversation|docs|code|runbook", help="Type of the texts.")
    ] = None,
    k: Annotated[
        int | None, typer.Option("--k", min=1, max=20, help="retrieval: results per search. Default: 10.")
    ] = None,
    fit: Annotated[
        Path | None, typer.Option("--fit", metavar="FILE", help="retrieval, recognition: write a fitted model.")
    ] = None,
    further: Annotated[
        list[Path] | None,
        typer.Option("--with", metavar="DIR", help="recognition: a further set for --fit; repeatable."),
    ] = None,
    among: Annotated[
        int, typer.Option("--among", min=0, help="recognition: synthetic incidents to add to memory.")
    ] = 0,
    full: Annotated[
        bool, typer.Option("--full", help="memory: measure all sizes; takes more than half an hour.")
    ] = False,
    only: Annotated[list[str] | None, typer.Option("--only", help="memory: measure this section; repeatable.")] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="small|scripted", help="models: small, the default if it is installed."),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="models: number of cases of the set.")] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", min=0.1, help="load, incidents, roll: tasks per second. Default: 10, 5 and 20."),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=1, help="load, incidents: duration. Default: 60 and 30.")
    ] = None,
) -> None:
    """Measure a temporary stack beside its physical limits, or the running stack of --url or --data-dir.

    Every run is printed with the load of the machine. On a running stack `flow` creates a project, which stays; every
    other benchmark needs a database of its own. A missed target is not an error; with exit code 1 a benchmark
    failed.
    """
    options = {
        "--type": [type_] if type_ else [],
        "--k": [str(k)] if k else [],
        "--fit": [str(fit.absolute())] if fit else [],
        "--among": [str(among)] if among else [],
        "--with": [str(each.absolute()) for each in further or ()],
        "--full": [""] if full else [],
        "--model": [model] if model else [],
        "--limit": [str(limit)] if limit else [],
        "--rate": [str(rate)] if rate else [],
        "--seconds": [str(seconds)] if seconds else [],
        "--only": only or [],
    }
    _run(session, name, folder, {option: values for option, values in options.items() if values})


def _run(session: CommandSession, name: str, folder: Path | None, options: Mapping[str, Sequence[str]]) -> None:
    """Replace this process by the module of a benchmark. Raises `UsageError`, `CommandError`."""
    _check(name, folder, options)
    if importlib.util.find_spec(PACKAGE) is None:
        raise CommandError("the benchmarks are not installed: pip install 'counterpoint[server]'")
    module, environment = name, dict(os.environ)
    arguments = ["--json"] if session.json else []
    arguments += [str(folder.absolute())] if folder is not None else []
    arguments += [word for option, values in options.items() for value in values for word in (option, value) if word]
    if session.url or session.data_dir:
        if name != "flow":
            raise UsageError(f"bench {name} needs a database of its own: it only measures a temporary stack")
        address = session.place.address()
        module, arguments = "http_flow", [address.url, *arguments, *_health(session.data_dir)]
        environment["COUNTERPOINT_TOKEN"] = address.token
    os.execve(sys.executable, [sys.executable, "-m", f"{PACKAGE}.{module}", *arguments], environment)


def _check(name: str, folder: Path | None, options: Mapping[str, Sequence[str]]) -> None:
    """Refuse what a benchmark does not accept. Raises `UsageError`."""
    if name not in BENCHES:
        raise UsageError(f"unknown benchmark {name}; choose one of {', '.join(BENCHES)}")
    for option in options:
        if name not in ACCEPTED_BY[option]:
            raise UsageError(f"{option} is an option of the benchmark {' and '.join(ACCEPTED_BY[option])}")
    if "--with" in options and "--fit" not in options:
        raise UsageError("--with needs --fit")
    if name in OF_SETS and folder is None:
        raise UsageError(f"bench {name} needs a folder of sets")
    if name not in (*OF_SETS, "load") and folder is not None:
        raise UsageError(f"bench {name} takes no folder")


def _health(data_dir: Path | None) -> list[str]:
    """Return the option with the health URLs of the services of a data folder."""
    from counterpoint.local.endpoints import read_endpoints

    return ["--health", *(each.health for each in read_endpoints(data_dir).services.values())] if data_dir else []

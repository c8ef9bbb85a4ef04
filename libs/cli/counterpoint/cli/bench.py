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

BENCHES = ("commit", "flow", "load", "incidents", "line", "memory", "retrieval", "answer", "triage", "recognition")
OF_SETS = ("retrieval", "answer", "triage", "recognition")
"""Those that are about the sets of a folder."""
FITTED = ("retrieval", "recognition")
"""Those that can write the model that they measure, fitted to the set."""


@command(app, "bench", Panel.OPERATE, "counterpoint bench commit --json")
def bench(
    session: Session,
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(BENCHES)}.")],
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="DIR|MIX", help="A set, for those that measure sets; the file of a mix, for `load`."),
    ] = None,
    type_: Annotated[
        str | None, typer.Option("--type", metavar="conversation|docs|code|runbook", help="What the texts are.")
    ] = None,
    k: Annotated[int, typer.Option("--k", min=1, max=20, help="Of `retrieval`: how many are looked at.")] = 10,
    fit: Annotated[
        Path | None,
        typer.Option("--fit", metavar="FILE", help="Of `retrieval` and `recognition`: write a model fitted to it."),
    ] = None,
    further: Annotated[
        list[Path] | None,
        typer.Option("--with", metavar="DIR", help="A further set that `recognition --fit` learns from; repeatable."),
    ] = None,
    among: Annotated[
        int, typer.Option("--among", min=0, help="Of `recognition`: invented incidents that memory holds besides.")
    ] = 0,
    full: Annotated[bool, typer.Option("--full", help="All sizes of `memory`: more than half an hour.")] = False,
    only: Annotated[list[str] | None, typer.Option("--only", help="A section of `memory`; repeatable.")] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", min=0.1, help="Of `load`, `incidents`: how many a second; 10 and 5 if not said."),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", min=1, help="Of `load`, `incidents`: for how long; 60 and 30 if not said."),
    ] = None,
) -> None:
    """Measure a throw-away stack against its physical limits, or the running one that --url or --data-dir names.

    Every raw run is printed with the load beside it. On a running stack `flow` works in a project of its own, which
    stays; `commit` needs a database of its own. A missed target is reported, not an error: exit code 1 means that the
    benchmark itself failed.
    """
    if name not in BENCHES:
        raise Misused(f"there is no benchmark {name}; there are {', '.join(BENCHES)}")
    if (full or only) and name != "memory":
        raise Misused("--full and --only are for the benchmark memory")
    if name == "load":
        folder = folder or _folder() / "mixes" / "half.json"
    elif (name in OF_SETS) != (folder is not None):
        raise Misused(f"{', '.join(OF_SETS)} want a folder of sets" if folder is None else f"{name} takes no folder")
    if fit and name not in FITTED:
        raise Misused(f"--fit is for the benchmarks {', '.join(FITTED)}")
    if further and not (fit and name == "recognition"):
        raise Misused("--with is for recognition --fit")
    if (rate or seconds) and name not in ("load", "incidents"):
        raise Misused("--rate and --seconds are for the benchmarks load and incidents")
    if among and name != "recognition":
        raise Misused("--among is for the benchmark recognition")
    program, environment = f"{name}.py", dict(os.environ)
    arguments = ["--json"] if session.json else []
    if folder is not None:
        arguments += [str(folder.absolute())]
        arguments += ["--type", type_] if type_ and name in ("retrieval", "answer") else []
        arguments += ["--k", str(k)] if name == "retrieval" else []
        arguments += ["--fit", str(fit.absolute())] if fit else []
        arguments += ["--among", str(among)] if among else []
        arguments += [word for each in further or () for word in ("--with", str(each.absolute()))]
    arguments += ["--full"] if full else []
    arguments += ["--rate", str(rate)] if rate else []
    arguments += ["--seconds", str(seconds)] if seconds else []
    arguments += [word for section in only or () for word in ("--only", section)]
    if session.url or session.data_dir:
        if name != "flow":
            raise Misused(f"bench {name} needs a database of its own: it only measures a throw-away stack")
        address = session.place.address()
        program, arguments = "outside.py", [address.url, *arguments, *_health(session.data_dir)]
        environment["COUNTERPOINT_TOKEN"] = address.token
    os.execve(sys.executable, [sys.executable, str(_folder() / program), *arguments], environment)


def _health(data_dir: Path | None) -> list[str]:
    """The option that says where the services of a data folder are asked whether they are ready."""
    from counterpoint.local.endpoints import read_endpoints

    return ["--health", *(each.health for each in read_endpoints(data_dir).services.values())] if data_dir else []


def _folder() -> Path:
    """Where the benchmarks are. Raises `CommandError` where this is not the checkout."""
    for above in Path(__file__).resolve().parents:
        if (above / "tests" / "bench" / "measure.py").is_file():
            return above / "tests" / "bench"
    raise CommandError("benchmarks run from a checkout of the sources; this is an installed package without them")

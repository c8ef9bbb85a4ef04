"""How a command is made: its own parameters, the options that all share, and how its errors end it."""

import inspect
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from counterpoint.cli.errors import CommandError, Exit
from counterpoint.cli.session import Session

P = ParamSpec("P")


class Panel(StrEnum):
    """The panels of the help."""

    WORK = "Work"
    LOOK = "Look"
    OPERATE = "Operate"


_SHARED = {
    "url": Annotated[str | None, typer.Option("--url", help="The HTTP API.", rich_help_panel="Where")],
    "token": Annotated[str | None, typer.Option("--token", help="The bearer token.", rich_help_panel="Where")],
    "data_dir": Annotated[
        Path | None, typer.Option("--data-dir", help="The data folder of a stack.", rich_help_panel="Where")
    ],
    "project": Annotated[
        str | None,
        typer.Option("--project", "-p", envvar="COUNTERPOINT_PROJECT", help="The project.", rich_help_panel="Where"),
    ],
    "json": Annotated[bool, typer.Option("--json", help="Print JSON alone.", rich_help_panel="Where")],
}
_PARAMETERS = [
    inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=False if name == "json" else None, annotation=annotation
    )
    for name, annotation in _SHARED.items()
]


def command(
    app: typer.Typer, name: str, panel: Panel, example: str
) -> Callable[[Callable[Concatenate[Session, P], Exit | None]], Callable[..., None]]:
    """Make a function of a Session and its own parameters a command of `app`.

    It returns the exit code, None for 0. `example` ends its help.
    """

    def register(function: Callable[Concatenate[Session, P], Exit | None]) -> Callable[..., None]:
        own = list(inspect.signature(function).parameters.values())[1:]

        def run(**given: Any) -> None:
            session = Session(**{shared: given.pop(shared) for shared in _SHARED})
            raise typer.Exit(int(_ended(session, lambda: function(session, **given))))  # type: ignore[call-arg]

        run.__signature__ = inspect.Signature([*own, *_PARAMETERS])  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in (*own, *_PARAMETERS)}
        run.__name__, run.__doc__ = function.__name__, function.__doc__
        app.command(name, rich_help_panel=panel, epilog=f"Example: {example}", no_args_is_help=False)(run)
        return run

    return register


def _ended(session: Session, work: Callable[[], Exit | None]) -> int:
    from counterpoint.proto.errors import CounterpointError

    try:
        return work() or Exit.DONE
    except CommandError as error:
        session.failed(error)
        return error.code
    except CounterpointError as error:
        session.failed(CommandError(str(error)))
        return Exit.FAILED
    except OSError as error:
        if error.filename is None:
            raise
        session.failed(CommandError(f"{error.filename}: {error.strerror}"))
        return Exit.FAILED
    except KeyboardInterrupt:
        return Exit.FAILED

"""Commands: their own parameters, the options that all share, and their exit codes.

Each module of the package `commands` defines one command. A subpackage is a group of commands and defines `GROUP`.
"""

import errno
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from counterpoint.cli.errors import CommandError, Exit, RuleError
from counterpoint.cli.session import CommandSession

P = ParamSpec("P")


class Panel(StrEnum):
    """The panels of the help, in their order."""

    WORK = "Work"
    LOOK = "Look"
    OPERATE = "Operate"


@dataclass(frozen=True)
class CliCommand:
    """A command of the command line. `run` takes the values of its parameters and of the shared options."""

    name: str
    panel: Panel
    example: str
    run: Callable[..., None]


@dataclass(frozen=True)
class CommandGroup:
    """A named group of commands."""

    name: str
    panel: Panel
    help: str


_SHARED = {
    "url": Annotated[str | None, typer.Option("--url", help="The URL of the HTTP API.", rich_help_panel="Where")],
    "token": Annotated[str | None, typer.Option("--token", help="The bearer token.", rich_help_panel="Where")],
    "data_dir": Annotated[
        Path | None, typer.Option("--data-dir", help="The data folder of a stack.", rich_help_panel="Where")
    ],
    "project": Annotated[
        str | None,
        typer.Option("--project", "-p", envvar="COUNTERPOINT_PROJECT", help="The project.", rich_help_panel="Where"),
    ],
    "json": Annotated[bool, typer.Option("--json", help="Print only JSON.", rich_help_panel="Where")],
}
_PARAMETERS = [
    inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=False if name == "json" else None, annotation=annotation
    )
    for name, annotation in _SHARED.items()
]


def command(
    name: str, panel: Panel, example: str
) -> Callable[[Callable[Concatenate[CommandSession, P], Exit | None]], CliCommand]:
    """Make a command of a function of a Session and its own parameters.

    The function returns the exit code, None for 0. `example` is the last line of the help.
    """

    def decorate(function: Callable[Concatenate[CommandSession, P], Exit | None]) -> CliCommand:
        own = list(inspect.signature(function).parameters.values())[1:]

        def run(**values: Any) -> None:
            session = CommandSession(**{shared: values.pop(shared) for shared in _SHARED})
            raise typer.Exit(int(_exit_code(session, lambda: function(session, **values))))  # type: ignore[call-arg]

        run.__signature__ = inspect.Signature([*own, *_PARAMETERS])  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in (*own, *_PARAMETERS)}
        run.__name__, run.__doc__ = function.__name__, function.__doc__
        return CliCommand(name, panel, example, run)

    return decorate


def add_commands(app: typer.Typer, package: ModuleType) -> None:
    """Add the commands and groups of a package to `app`, by panel and name."""
    modules = list(_modules(package))
    commands = [each for module in modules for each in vars(module).values() if isinstance(each, CliCommand)]
    for each in sorted(commands, key=lambda each: ([*Panel].index(each.panel), each.name)):
        options = {"rich_help_panel": each.panel, "epilog": f"Example: {each.example}"}
        app.command(each.name, no_args_is_help=False, **options)(each.run)  # type: ignore[arg-type]
    for module in modules:
        group = getattr(module, "GROUP", None)
        if isinstance(group, CommandGroup):
            part = typer.Typer(help=group.help, no_args_is_help=True)
            add_commands(part, module)
            app.add_typer(part, name=group.name, rich_help_panel=group.panel)


def _modules(package: ModuleType) -> Iterator[ModuleType]:
    for module in pkgutil.iter_modules(package.__path__):
        yield importlib.import_module(f"{package.__name__}.{module.name}")


def _exit_code(session: CommandSession, work: Callable[[], Exit | None]) -> int:
    """Run a command and print its error, if any."""
    from counterpoint.proto.errors import CounterpointError, Permanent

    try:
        return work() or Exit.DONE
    except CommandError as error:
        session.failed(error)
        return error.code
    except ModuleNotFoundError as missing:
        session.failed(_not_installed(missing))
        return Exit.FAILED
    except Permanent as error:
        texts = (f"{each.field}: {each.problem}" for each in error.problems)
        session.failed(RuleError(error.code, "; ".join(texts) or error.code))
        return Exit.FAILED
    except CounterpointError as error:
        session.failed(CommandError(str(error)))
        return Exit.FAILED
    except OSError as error:
        if error.filename is None and error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        where = f"{error.filename}: " if error.filename is not None else ""
        session.failed(CommandError(f"{where}{error.strerror}"))
        return Exit.FAILED
    except KeyboardInterrupt:
        return Exit.FAILED


def _not_installed(missing: ModuleNotFoundError) -> CommandError:
    """Return the error of a command that needs more than the client's installation."""
    return CommandError(f"{missing.name} is not installed; this command needs it: pip install 'counterpoint[server]'")

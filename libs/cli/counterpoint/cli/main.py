"""The `counterpoint` command. Commands import what they need when they run, so that help and completion are quick."""

from typing import Annotated

import typer

from counterpoint.cli import commands
from counterpoint.cli.command import add_commands

app = typer.Typer(
    name="counterpoint",
    help="Remembers how things broke and how they were fixed, and puts a team of agents to work on it.",
    epilog=(
        "Exit codes: 0 done, 1 failed, 2 usage, 3 not reachable, 4 waiting for input. Without --url or --data-dir a "
        "command uses COUNTERPOINT_URL, COUNTERPOINT_DATA_DIR, or the nearest .counterpoint folder upwards."
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
add_commands(app, commands)


def _print_version(wanted: bool) -> None:
    if wanted:
        from counterpoint.cli.version import version

        print(f"counterpoint {version()}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and its commit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Declare the options of the command itself."""


if __name__ == "__main__":
    app()

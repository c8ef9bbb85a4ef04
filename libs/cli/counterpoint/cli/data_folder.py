"""Commands on the data folder of a stack."""

from pathlib import Path
from typing import TYPE_CHECKING

from counterpoint.cli.errors import CommandError, UsageError
from counterpoint.cli.session import CommandSession

if TYPE_CHECKING:
    from counterpoint.local.credentials import Credentials


def quiet_logs() -> None:
    """Send the supervisor's log events of this process to standard error, from warnings up."""
    import logging
    import sys

    import structlog

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def reject_url(session: CommandSession) -> None:
    if session.url:
        raise UsageError("this command needs a data folder: use --data-dir, not --url")


def stored_credentials(session: CommandSession) -> "tuple[Path, Credentials]":
    """Return a data folder and its credentials. Raises `CommandError` if it has none."""
    from counterpoint.local.credentials import read_credentials

    folder = session.place.folder()
    credentials = read_credentials(folder / "secrets.json")
    if credentials is None:
        raise CommandError(f"{folder} has no stack: start one by `counterpoint up`, or name its folder by --data-dir")
    return folder, credentials


def print_private(session: CommandSession, name: str, text: str, output: Path | None) -> None:
    """Print a text that contains passwords, or write it to a file that only its owner can read."""
    from counterpoint.local.private_files import write_private

    if output is None and session.json:
        session.show({name: text}, lambda: text)
    elif output is None:
        print(text, end="")
    else:
        write_private(output, text)
        session.show({"file": str(output)}, lambda: f"{output} contains passwords: delete it when it has been used")

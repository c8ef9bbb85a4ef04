"""Arguments and options that several commands share, and the parsing of names."""

import re
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from counterpoint.cli.errors import UsageError


def check_id(given: str | None) -> str | None:
    """Return an id that can be part of a URL, None if it was not given. Raises `typer.BadParameter`."""
    if given is not None and not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", given):
        raise typer.BadParameter("an id is 1 to 64 letters, digits, _ or -")
    return given


TaskId = Annotated[str, typer.Argument(metavar="TASK", help="The task's id.", callback=check_id)]
SessionId = Annotated[
    str | None,
    typer.Option(
        "--session", metavar="ID", help="The session that it belongs to; a new id starts one.", callback=check_id
    ),
]
ErrorFile = Annotated[
    Path | None,
    typer.Option("--error-file", help="A file with the complete error message.", exists=True, dir_okay=False),
]
Timeout = Annotated[float, typer.Option("--timeout", help="Maximum wait, in seconds.", min=0)]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of items.")]
AsOf = Annotated[
    str | None, typer.Option("--as-of", metavar="COMMIT|TIME", help="The state after a commit, or at a time.")
]
PrivateOutput = Annotated[
    Path | None, typer.Option("--output", help="The file to write, readable by you alone. Default: standard output.")
]
JobName = Annotated[str, typer.Argument(metavar="JOB", help="NAMESPACE/NAME of a job.")]


def parse_job(given: str) -> dict[str, str]:
    """Return the job of NAMESPACE/NAME. The namespace may contain slashes, the name may not. Raises UsageError."""
    namespace, slash, name = given.rpartition("/")
    if not slash or not namespace or not name:
        raise UsageError(f"a job is NAMESPACE/NAME, not {given}")
    return {"namespace": namespace, "name": name}


def job_path(given: str) -> str:
    """Return the URL path of a job. Raises UsageError."""
    job = parse_job(given)
    return f"/v1/jobs/{quote(job['namespace'], safe='')}/{quote(job['name'], safe='')}"

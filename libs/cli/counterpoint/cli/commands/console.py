"""`counterpoint console`: print a link that signs a browser in."""

from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.options import check_id
from counterpoint.cli.session import CommandSession

if TYPE_CHECKING:
    from counterpoint.cli.api import ApiClient


@command("console", Panel.LOOK, "counterpoint console")
def console(
    session: CommandSession,
    task: Annotated[
        str | None, typer.Argument(metavar="TASK", help="The id of a task to show.", callback=check_id)
    ] = None,
) -> None:
    """Print the address of the console, with a code that signs a browser in once."""
    from rich.text import Text

    with session.connect() as api:
        url, valid_s = console_link(api, session.project, task)
        text = f"{url}\nThe link signs a browser in once, within {valid_s // 60} minutes."
        session.show({"url": url, "valid_s": valid_s}, lambda: Text(text, no_wrap=True, overflow="ignore"))


def console_link(api: "ApiClient", project: str | None, task: str | None = None) -> tuple[str, int]:
    """Return an address that signs a browser in as the caller, and the seconds that it is valid. Raises ApiError.

    The code is in the fragment, which browsers send to no server.
    """
    made = api.post("/v1/sign-in-codes", {})
    named = {"code": made["code"], "project": project, "task": task}
    fragment = urlencode({name: value for name, value in named.items() if value is not None})
    return f"{api.url}/#{fragment}", int(made["valid_s"])

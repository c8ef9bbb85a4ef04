"""The commands on dead letters: messages that could not be handled."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.look import Limit
from counterpoint.cli.session import Session
from counterpoint.cli.table import table, when
from counterpoint.cli.work import an_id

if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer(help="Messages that could not be handled: list, show, retry.", no_args_is_help=True)

LetterId = Annotated[str, typer.Argument(metavar="ID", help="The dead letter's id.", callback=an_id)]


@command(app, "list", Panel.LOOK, "counterpoint dead-letters list")
def listed(session: Session, limit: Limit = 50) -> None:
    """List them, newest first."""
    with session.connect() as api:
        found = api.pages("/v1/dead-letters", limit, project=session.project)
    session.show(
        found,
        lambda: table(
            ("when", "state", "code", "subject", "id"),
            [
                (when(each["at"]), *map(each.get, ("state", "code", "subject", "dead_letter_id")))
                for each in found["items"]
            ],
            "no dead letters",
        ),
    )


@command(app, "show", Panel.LOOK, "counterpoint dead-letters show ID")
def show(session: Session, letter: LetterId) -> None:
    """Show one: the message as it came, and what is wrong with it."""
    with session.connect() as api:
        found = api.get(f"/v1/dead-letters/{letter}", project=session.project)
    session.show(found, lambda: _letter(found))


@command(app, "retry", Panel.LOOK, "counterpoint dead-letters retry ID")
def retry(session: Session, letter: LetterId) -> None:
    """Have it handled once more, after what was wrong has been put right."""
    with session.connect() as api:
        reply = api.post(f"/v1/dead-letters/{letter}/retry", {}, project=session.project)
    session.show(reply, lambda: f"{letter}: sent again")


def _letter(found: dict[str, Any]) -> "RenderableType":
    problems = [f"  {one.get('field')}: {one.get('problem')}" for one in found.get("problems", ())]
    headers = [f"  {name}: {value}" for name, value in found.get("headers", {}).items()]
    head = f"{found['code']} on {found['subject']}"
    return "\n".join([head, *problems, *headers, "", str(found.get("body", ""))])

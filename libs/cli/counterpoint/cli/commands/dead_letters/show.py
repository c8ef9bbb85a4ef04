"""`counterpoint dead-letters show`: show a dead letter."""

from typing import TYPE_CHECKING, Any

from counterpoint.cli.command import Panel, command
from counterpoint.cli.commands.dead_letters import LetterId
from counterpoint.cli.session import CommandSession

if TYPE_CHECKING:
    from rich.console import RenderableType


@command("show", Panel.LOOK, "counterpoint dead-letters show ID")
def show(session: CommandSession, letter: LetterId) -> None:
    """Show a dead letter: the message and its problems."""
    with session.connect() as api:
        reply = api.get(f"/v1/dead-letters/{letter}", project=session.project)
    session.show(reply, lambda: _letter(reply))


def _letter(reply: dict[str, Any]) -> "RenderableType":
    problems = [f"  {one.get('field')}: {one.get('problem')}" for one in reply.get("problems", ())]
    headers = [f"  {name}: {value}" for name, value in reply.get("headers", {}).items()]
    head = f"{reply['code']} on {reply['subject']}"
    return "\n".join([head, *problems, *headers, "", str(reply.get("body", ""))])

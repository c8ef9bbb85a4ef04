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
        found = api.get(f"/v1/dead-letters/{letter}", project=session.project)
    session.show(found, lambda: _letter(found))


def _letter(found: dict[str, Any]) -> "RenderableType":
    problems = [f"  {one.get('field')}: {one.get('problem')}" for one in found.get("problems", ())]
    headers = [f"  {name}: {value}" for name, value in found.get("headers", {}).items()]
    head = f"{found['code']} on {found['subject']}"
    return "\n".join([head, *problems, *headers, "", str(found.get("body", ""))])

"""`counterpoint mcp`: MCP over standard input and output."""

from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.session import CommandSession


@command("mcp", Panel.WORK, "counterpoint mcp --project orders")
def mcp(
    session: CommandSession,
    all_tools: Annotated[bool, typer.Option("--all-tools", help="List all tools, not only the usual ones.")] = False,
) -> None:
    """Serve MCP on standard input and output, for clients that start a command (docs/mcp.md)."""
    import asyncio

    from counterpoint.cli.mcp_bridge import serve

    query = {"project": session.project, "tools": "all" if all_tools else None}
    asyncio.run(serve(session.place.address(), {name: value for name, value in query.items() if value}))

"""`counterpoint model serve`: run the small model."""

from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import Exit
from counterpoint.cli.session import CommandSession

PORT = 8490


@command("serve", Panel.OPERATE, "counterpoint model serve")
def serve(
    session: CommandSession,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes a free one.")] = PORT,
) -> Exit:
    """Run the small model with OpenAI's API on this machine until Ctrl-C, and print the settings that use it."""
    from counterpoint.local.small_model.package import QWEN, model_folder
    from counterpoint.local.small_model.serve import serving, settings_of

    folder = model_folder(QWEN)
    with serving(QWEN, folder, port, folder.path / "server.log") as (url, process):
        settings = settings_of(QWEN, url)
        session.line(
            {"url": url, "settings": settings}, lambda: "\n".join(f"export {k}={v}" for k, v in settings.items())
        )
        code = process.wait()
    session.note(f"the server ended with code {code}, see {folder.path / 'server.log'}")
    return Exit.FAILED

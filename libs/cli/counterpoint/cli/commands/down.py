"""`counterpoint down`: stop a stack."""

from counterpoint.cli.command import Panel, command
from counterpoint.cli.data_folder import reject_url
from counterpoint.cli.session import CommandSession


@command("down", Panel.OPERATE, "counterpoint down")
def down(session: CommandSession) -> None:
    """Stop the stack of a data folder and wait for it."""
    from counterpoint.local import up as local

    reject_url(session)
    folder = session.place.folder()
    stopped = local.down(folder)
    session.show(
        {"data_dir": str(folder), "stopped": stopped},
        lambda: f"stopped the stack on {folder}" if stopped else f"nothing was running on {folder}",
    )

"""`counterpoint restore`: restore a backup."""

import asyncio
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.data_folder import quiet_logs, reject_url
from counterpoint.cli.passphrase import known_passphrase
from counterpoint.cli.session import CommandSession


@command("restore", Panel.OPERATE, "counterpoint restore counterpoint.backup --data-dir restored")
def restore(
    session: CommandSession,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A backup.")],
) -> None:
    """Restore a backup into an empty data folder, or into the empty database of COUNTERPOINT_POSTGRES_URL.

    The file is checked before anything is made. Until the restore is complete, `up` refuses the folder; an interrupted
    one is run again.
    """
    from counterpoint.cli.version import release
    from counterpoint.local.backup.opened import open_backup
    from counterpoint.local.backup.restore import restore as restore_backup

    reject_url(session)
    quiet_logs()
    folder, began = session.place.folder(), monotonic()
    opened = open_backup(file, known_passphrase(), release())
    asyncio.run(restore_backup(opened, folder))
    result = {
        "data_dir": str(folder),
        "installation": opened.manifest.installation,
        "made_at": opened.manifest.created_at,
        "seconds": round(monotonic() - began, 1),
    }
    start = f"counterpoint up --data-dir {folder}"
    session.show(
        result,
        lambda: (
            f"{folder} is the house of {opened.manifest.created_at}; start it with `{start}`\n"
            "Do not run it while the house that was backed up runs: both would act."
        ),
    )

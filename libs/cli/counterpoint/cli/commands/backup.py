"""`counterpoint backup`: write a backup."""

import asyncio
import sys
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.data_folder import quiet_logs, reject_url
from counterpoint.cli.errors import UsageError
from counterpoint.cli.passphrase import new_passphrase
from counterpoint.cli.session import CommandSession


@command("backup", Panel.OPERATE, "counterpoint backup counterpoint.backup")
def backup(
    session: CommandSession,
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="A new file, or - for standard output.")],
) -> None:
    """Write a consistent backup of a house, which may run meanwhile.

    It contains the database, the signed checkpoints, the settings without secrets, and the keys, encrypted by the
    passphrase in COUNTERPOINT_BACKUP_PASSPHRASE, or asked for. The database is not encrypted.
    """
    from counterpoint.cli.version import release
    from counterpoint.local.backup.create import create, create_file

    reject_url(session)
    if file == "-" and (session.json or sys.stdout.isatty()):
        raise UsageError("standard output takes the backup: redirect it, without --json")
    quiet_logs()
    folder, passphrase, began = session.place.folder(), new_passphrase(), monotonic()
    if file == "-":
        report = asyncio.run(create(folder, sys.stdout.buffer, passphrase, release()))
        session.note(f"{report.bytes} bytes written")
        return
    report = create_file(folder, Path(file), passphrase, release())
    result = {"file": file, "seconds": round(monotonic() - began, 1), **report.model_dump()}
    session.show(result, lambda: f"{file}: {report.bytes} bytes; check it by `counterpoint verify --backup {file}`")

"""Restoration of a backup into an empty data folder or an empty database of a server."""

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

from counterpoint.bus.check_result import Level
from counterpoint.local.backup.create import checkpoint_file
from counterpoint.local.backup.dump import load
from counterpoint.local.backup.opened import OpenedBackup
from counterpoint.local.backup.place import embedded
from counterpoint.local.credentials import Credentials, read_credentials
from counterpoint.local.doctor.jobs import examine_postgres
from counterpoint.local.doctor.servers import refuse_unfit
from counterpoint.local.lock import acquire_lock
from counterpoint.local.postgres import PostgresUrls, bootstrap
from counterpoint.local.private_files import private_folder, write_private
from counterpoint.local.settings import local_settings
from counterpoint.local.state_file import RESTORING
from counterpoint.proto.errors import ErrorCode, Permanent, Problem

_ENGINES = ("postgres", "nats", "valkey", "memory", "state.json")
"""The content that a restore makes, and makes again after an interruption."""
_ALLOWED = frozenset({"secrets.json", "logs", RESTORING})
"""The content that a folder may have before a restore; `counterpoint sql roles` writes the first."""
CONTENT = "postgres content"
"""The check about the content of a database."""
SETTINGS_FILE = "restored-settings.json"


async def restore(backup: OpenedBackup, data_dir: Path) -> None:
    """Restore a backup. Until it is complete, `up` refuses the folder, and the restore may be run again.

    The keys and the administrator's token are those of the backup. The passwords of engines are those of the folder if
    it has some. Raises `Permanent` for a folder or database with content, and what the engines raise.
    """
    again = _examine_folder(data_dir, backup)
    credentials = _merged(backup.credentials, read_credentials(data_dir / "secrets.json"))
    external = local_settings().postgres_url
    if external is None:
        _begin(data_dir, backup, again)
        async with embedded(data_dir, credentials) as urls:
            await load(urls.owner, backup.database())
    else:
        urls = PostgresUrls.of(external, credentials.postgres)
        empty = await _is_empty(urls, credentials, again)
        _begin(data_dir, backup, again)
        if empty:
            log = data_dir / "logs" / "postgres.log"
            await bootstrap(urls, credentials.postgres, log, shared_server=True)
            await load(urls.owner, backup.database())
    _finish(data_dir, backup, credentials)
    (data_dir / RESTORING).unlink()


def _examine_folder(data_dir: Path, backup: OpenedBackup) -> bool:
    """Return whether an interrupted restore of this backup is repeated. Raises `Permanent` for other content."""
    os.close(acquire_lock(private_folder(data_dir)))
    again = _begun(data_dir / RESTORING, backup)
    if not again and (content := sorted(path.name for path in data_dir.iterdir() if path.name not in _ALLOWED)):
        raise _not_empty(str(data_dir), f"contains {', '.join(content[:5])}")
    return again


def _begin(data_dir: Path, backup: OpenedBackup, again: bool) -> None:
    """Mark the folder as incomplete, and delete what an interrupted restore has left."""
    if again:
        _clear(data_dir)
    manifest = backup.manifest
    write_private(data_dir / RESTORING, json.dumps({"installation": manifest.installation, "at": manifest.created_at}))


async def _is_empty(urls: PostgresUrls, credentials: Credentials, again: bool) -> bool:
    """Whether an external database is empty; False if an interrupted restore has loaded it. Raises `Permanent`."""
    findings = await examine_postgres(urls, credentials, os.environ, empty=True)
    refuse_unfit(finding for finding in findings if finding.check != CONTENT)
    content = next((finding for finding in findings if finding.check == CONTENT), None)
    if content is None or content.level == Level.OK:
        return True
    if again and content.level == Level.WARNING:
        return False
    raise _not_empty("postgres", content.detail)


def _begun(marker: Path, backup: OpenedBackup) -> bool:
    """Whether a restore of this backup was interrupted here. Raises `Permanent` if it was that of another one."""
    try:
        begun = json.loads(marker.read_bytes())
    except FileNotFoundError:
        return False
    if begun != {"installation": backup.manifest.installation, "at": backup.manifest.created_at}:
        problem = f"the restore of the backup of {begun.get('at')} was interrupted here: run that one again"
        raise Permanent(ErrorCode.RESTORE_UNFINISHED, (Problem(field=str(marker.parent), problem=problem),))
    return True


def _clear(data_dir: Path) -> None:
    for name in _ENGINES:
        path = data_dir / name
        # An engine of a restore that was killed may still be ending, and remove its own files.
        while path.is_dir():
            with suppress(FileNotFoundError):
                shutil.rmtree(path)
        path.unlink(missing_ok=True)


def _merged(backup: Credentials, folder: Credentials | None) -> Credentials:
    """Return the identity of the backup with the engines' passwords of the folder, if it has some."""
    if folder is None:
        return backup
    engines = {"nats": folder.nats, "postgres": folder.postgres, "valkey": folder.valkey}
    return backup.model_copy(update=engines | {"nats_store_key": folder.nats_store_key})


def _finish(data_dir: Path, backup: OpenedBackup, credentials: Credentials) -> None:
    """Write the small files, the credentials last. A file of later checkpoints in COUNTERPOINT_AUDIT_DIR is kept."""
    path = checkpoint_file(data_dir)
    if backup.checkpoints and not path.exists():
        private_folder(path.parent)
        write_private(path, backup.checkpoints.decode(errors="replace"))
    write_private(data_dir / SETTINGS_FILE, backup.settings.decode())
    write_private(data_dir / "secrets.json", credentials.model_dump_json(indent=1))


def _not_empty(field: str, problem: str) -> Permanent:
    return Permanent(ErrorCode.NOT_EMPTY, (Problem(field=field, problem=f"{problem}; restore into an empty one"),))

"""Creation of a backup."""

import asyncio
import json
import os
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO

from pydantic import BaseModel, ConfigDict

from counterpoint.local.backup.archive import (
    CHECKPOINTS,
    DATABASE,
    FORMAT,
    KEYS,
    MANIFEST,
    PART_BYTES,
    SETTINGS,
    BackupWriter,
    Manifest,
)
from counterpoint.local.backup.dump import dump
from counterpoint.local.backup.place import database
from counterpoint.local.backup.sealing import Salt, Seal
from counterpoint.local.credentials import Credentials, read_credentials
from counterpoint.local.settings import local_settings
from counterpoint.local.state_file import RESTORING
from counterpoint.local.up import settings as effective_settings
from counterpoint.proto.errors import ErrorCode, Permanent, Problem, Transient


class BackupReport(BaseModel):
    """The extent of a backup."""

    model_config = ConfigDict(frozen=True)

    installation: str
    version: str
    bytes: int


def create_file(data_dir: Path, path: Path, passphrase: str, version: str) -> BackupReport:
    """Write a backup to a new file, mode 0600, which appears when it is complete.

    Raises `Permanent` for an existing file, a missing folder or an empty data folder, `OSError` for a folder that
    cannot be written, `Transient` if the database cannot be reached.
    """
    if path.exists():
        raise Permanent(ErrorCode.CONFLICT, (Problem(field=str(path), problem="exists; name a new file"),))
    if not path.parent.is_dir():
        problem = Problem(field=str(path.parent), problem="is not a folder; create it, or name another file")
        raise Permanent(ErrorCode.NOT_FOUND, (problem,))
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with _new_file(draft, path) as output:
        try:
            report = asyncio.run(create(data_dir, output, passphrase, version))
            os.fsync(output.fileno())
            draft.rename(path)
        finally:
            draft.unlink(missing_ok=True)
    return report


def _new_file(draft: Path, path: Path) -> BinaryIO:
    """Create the draft of a file. Raises `OSError` that names the file."""
    try:
        return open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


async def create(data_dir: Path, output: BinaryIO, passphrase: str, version: str) -> BackupReport:
    """Write a backup to a stream, while the house runs or not. Raises as `create_file`."""
    credentials = _credentials(data_dir)
    salt = Salt.new()
    manifest = Manifest(
        format=FORMAT,
        version=version,
        installation=credentials.installation,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        salt=salt,
    )
    seal = Seal.derive(passphrase, salt)
    writer = BackupWriter(output, seal)
    writer.add(MANIFEST, manifest.model_dump_json().encode())
    writer.add(KEYS, seal.encrypt(credentials.model_dump_json().encode()))
    # Before the dump: the restored log must contain every checkpoint.
    with suppress(FileNotFoundError), checkpoint_file(data_dir).open("rb") as checkpoints:
        while part := checkpoints.read(PART_BYTES):
            writer.add_part(CHECKPOINTS, part)
    writer.add(SETTINGS, json.dumps(_settings(data_dir), indent=1).encode())
    async with database(data_dir, credentials) as urls:
        await dump(urls.backup, partial(writer.add_part, DATABASE))
    writer.finish()
    return BackupReport(installation=credentials.installation, version=version, bytes=writer.bytes)


def checkpoint_file(data_dir: Path) -> Path:
    """Return the path of memory's checkpoint file."""
    folder = os.environ.get("COUNTERPOINT_AUDIT_DIR")
    return (Path(folder) if folder else data_dir / "memory" / "audit") / "checkpoints"


def _credentials(data_dir: Path) -> Credentials:
    """Return the credentials of a house that exists. Raises `Permanent`."""
    found = read_credentials(data_dir / "secrets.json")
    embedded = (data_dir / "postgres" / "data").exists()
    if found is None or not (embedded or local_settings().postgres_url):
        raise Permanent(ErrorCode.NOT_FOUND, (Problem(field=str(data_dir), problem="has no house to back up"),))
    if (data_dir / RESTORING).exists():
        raise Permanent(ErrorCode.RESTORE_UNFINISHED, (Problem(field=str(data_dir), problem="run the restore again"),))
    if not found.installation or "backup" not in found.postgres.model_fields_set:
        problem = "was last run by an older release: start it once by `counterpoint up`, then back it up"
        raise Permanent(ErrorCode.NOT_FOUND, (Problem(field=str(data_dir), problem=problem),))
    return found


def _settings(data_dir: Path) -> dict[str, dict[str, object]]:
    """Return the effective settings of the running services, with secrets masked; nothing if none run."""
    try:
        return effective_settings(data_dir)
    except Transient:
        return {}

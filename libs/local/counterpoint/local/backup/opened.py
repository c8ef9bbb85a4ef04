"""A backup that was read and found to be complete."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from pydantic import ValidationError

from counterpoint.local.backup.archive import (
    CHECKPOINTS,
    DATABASE,
    END,
    FORMAT,
    KEYS,
    MANIFEST,
    SETTINGS,
    Manifest,
    check_end,
    read_entries,
    read_manifest,
)
from counterpoint.local.backup.sealing import Seal, damaged
from counterpoint.local.credentials import Credentials
from counterpoint.proto.errors import ErrorCode, Permanent, Problem


@dataclass(frozen=True)
class OpenedBackup:
    """The small entries of a complete backup, and the hash of each entry. `database` reads the large ones again."""

    path: Path
    manifest: Manifest
    credentials: Credentials
    checkpoints: bytes
    settings: bytes
    database_bytes: int
    hashes: dict[str, str]

    def database(self) -> Iterator[bytes]:
        """Yield the parts of the output of `pg_dump`. Raises `Permanent` for a file that has changed meanwhile."""
        with self.path.open("rb") as file:
            expected = iter(self.hashes.items())
            for name, content in read_entries(file):
                if name != END and next(expected, None) != (name, sha256(content).hexdigest()):
                    raise damaged("the file has changed while it was read")
                if name.startswith(DATABASE):
                    yield content


def open_backup(path: Path, passphrase: str, version: str) -> OpenedBackup:
    """Read the whole file. Raises `Permanent` for a cut or changed file, a wrong passphrase or a later release."""
    small, hashes, checkpoints, database_bytes = dict[str, bytes](), dict[str, str](), bytearray(), 0
    seal: Seal | None = None
    manifest: Manifest | None = None
    with path.open("rb") as file:
        for name, content in read_entries(file):
            if manifest is None:
                if name != MANIFEST:
                    raise damaged("the file is not a backup of Counterpoint")
                manifest = read_manifest(content)
                _check_release(manifest, version)
                seal = Seal.derive(passphrase, manifest.salt)
            if name == END:
                break
            if name in hashes:
                raise damaged(f"it has two entries {name!r}")
            hashes[name] = sha256(content).hexdigest()
            if name.startswith(DATABASE):
                database_bytes += len(content)
            elif name.startswith(CHECKPOINTS):
                checkpoints += content
            else:
                small[name] = content
    if manifest is None or seal is None or KEYS not in small:
        raise damaged("it has no keys")
    keys = seal.decrypt(small[KEYS])
    check_end(content, hashes, seal)
    try:
        credentials = Credentials.model_validate_json(keys)
    except ValidationError:
        raise damaged("its keys cannot be read") from None
    return OpenedBackup(path, manifest, credentials, bytes(checkpoints), small[SETTINGS], database_bytes, hashes)


def _check_release(manifest: Manifest, version: str) -> None:
    if manifest.format > FORMAT or _numbers(manifest.version) > _numbers(version):
        problem = (
            f"it was made by release {manifest.version}, this is {version}: restore it by that release or a later one"
        )
        raise Permanent(ErrorCode.BACKUP_LATER, (Problem(field="backup", problem=problem),))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())

"""The file of a backup: a tar archive that ends with the hashes of its entries, to detect a cut or changed file.

| entry | content |
|---|---|
| `manifest.json` | format, version, installation, time, parameters of the passphrase |
| `keys.sealed` | the credentials, encrypted |
| `checkpoints/NUMBER` | the signed checkpoints of the audit log, in parts |
| `settings.json` | the effective settings of each service, without secrets |
| `database/NUMBER` | the output of `pg_dump`, in parts |
| `end.json` | the SHA-256 of every entry before, in order, and their authentication code |
"""

import json
import tarfile
import time
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from typing import BinaryIO

from pydantic import BaseModel, ConfigDict, ValidationError

from counterpoint.local.backup.sealing import Salt, Seal, damaged

FORMAT = 1
MANIFEST, KEYS, SETTINGS, END = "manifest.json", "keys.sealed", "settings.json", "end.json"
CHECKPOINTS, DATABASE = "checkpoints/", "database/"
"""The names of entries in parts begin with these."""
PART_BYTES = 4 << 20
_ENTRY_BYTES = 64 << 20
"""Maximum size of an entry, so that a changed size cannot fill the memory."""


class Manifest(BaseModel):
    """The first entry, in clear text."""

    model_config = ConfigDict(frozen=True)

    format: int
    version: str
    installation: str
    created_at: str
    salt: Salt


class End(BaseModel):
    """The last entry."""

    model_config = ConfigDict(frozen=True)

    entries: dict[str, str]
    code: str


class BackupWriter:
    """Writes the entries to a stream, which need not be seekable."""

    def __init__(self, output: BinaryIO, seal: Seal) -> None:
        self._output = output
        self._seal = seal
        self._hashes: dict[str, str] = {}
        self._parts: Counter[str] = Counter()
        self.bytes = 0

    def add(self, name: str, content: bytes) -> None:
        """Write an entry."""
        self._write(name, content)
        self._hashes[name] = sha256(content).hexdigest()

    def add_part(self, name: str, content: bytes) -> None:
        """Write the next part of `CHECKPOINTS` or `DATABASE`."""
        self._parts[name] += 1
        self.add(f"{name}{self._parts[name]:08}", content)

    def finish(self) -> None:
        """Write the last entry and the end of the archive."""
        code = self._seal.sign(_canonical(self._hashes))
        self._write(END, End(entries=self._hashes, code=code).model_dump_json().encode())
        self._put(bytes(2 * tarfile.BLOCKSIZE))

    def _write(self, name: str, content: bytes) -> None:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode, entry.mtime = len(content), 0o600, int(time.time())
        self._put(entry.tobuf(tarfile.PAX_FORMAT), content, bytes(-len(content) % tarfile.BLOCKSIZE))
        self.bytes += len(content)

    def _put(self, *blocks: bytes) -> None:
        self._output.writelines(blocks)
        self._output.flush()


def read_entries(stream: BinaryIO) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each entry up to the last one. Raises `Permanent` for a file that is cut short."""
    try:
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for entry in tar:
                file = tar.extractfile(entry) if entry.isreg() and not entry.issparse() else None
                if file is None or entry.size > _ENTRY_BYTES or not _ours(entry.name):
                    raise damaged(f"it has an entry {entry.name!r} that no backup has")
                yield entry.name, file.read()
                if entry.name == END:
                    return
    except (tarfile.TarError, EOFError) as error:
        raise damaged(f"the file is cut short or is not a backup ({error})") from None
    raise damaged("the file is cut short: its end is missing")


def read_manifest(content: bytes) -> Manifest:
    """Return the manifest. Raises `Permanent` for one that is not ours."""
    try:
        return Manifest.model_validate_json(content)
    except ValidationError:
        raise damaged("its manifest cannot be read") from None


def check_end(content: bytes, hashes: dict[str, str], seal: Seal) -> None:
    """Compare the hashes with those of the last entry. Raises `Permanent` if they differ or were not authenticated."""
    try:
        end = End.model_validate_json(content)
    except ValidationError:
        raise damaged("its end cannot be read") from None
    if end.entries != hashes:
        wrong = sorted(name for name in end.entries.keys() | hashes.keys() if end.entries.get(name) != hashes.get(name))
        raise damaged(f"these entries were changed, added or removed: {', '.join(wrong[:5])}")
    if not seal.signed(_canonical(hashes), end.code):
        raise damaged("its content was changed and its hashes too, or its order")


def _ours(name: str) -> bool:
    return name in (MANIFEST, KEYS, SETTINGS, END) or name.startswith((CHECKPOINTS, DATABASE))


def _canonical(hashes: dict[str, str]) -> bytes:
    """Return the hashes as signed, in the order of the entries."""
    return json.dumps(hashes).encode()

"""Files that only we may read, replaced in one step."""

import errno
import os
from pathlib import Path

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors of a disk without room."""


def write_private(path: Path, text: str) -> None:
    """Replace `path` by `text` with mode 0600: a reader or a power cut finds the old text or the new one."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def private_folder(path: Path) -> Path:
    """Create `path` with mode 0700 unless it is there, and return it absolute."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path.resolve()

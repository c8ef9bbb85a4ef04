"""Files and folders readable by their owner only; files are replaced atomically."""

import errno
import os
from pathlib import Path

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Error numbers of a full disk or quota."""


def write_private(path: Path, text: str) -> None:
    """Replace the content of `path` atomically and durably, with mode 0600."""
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
    """Create `path` with mode 0700 if missing, and return it as an absolute path."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path.resolve()

"""Locks on folders. The lock on a data folder decides whether a supervisor runs there."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from counterpoint.local.state_file import read_state
from counterpoint.proto.errors import ErrorCode, Permanent, Problem

_PATIENCE_S = 0.3


class AlreadyRunning(Permanent):
    """Another supervisor runs on the data folder."""

    def __init__(self, data_dir: Path) -> None:
        holder = read_state(data_dir / "state.json").supervisor
        by = f"process {holder.pid}" if holder is not None else "another process"
        problem = f"{by} already runs on {data_dir}; `counterpoint status` shows it, `counterpoint down` stops it"
        super().__init__(ErrorCode.ALREADY_RUNNING, (Problem(field="data_dir", problem=problem),))


def _try_lock(data_dir: Path, kind: int) -> int | None:
    descriptor = os.open(data_dir, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def acquire_lock(data_dir: Path) -> int:
    """Lock the folder for this process's life and return the descriptor. Raises `AlreadyRunning`.

    Retries for a moment, since `is_locked` also locks briefly.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while (descriptor := _try_lock(data_dir, fcntl.LOCK_EX)) is None:
        if time.monotonic() > deadline:
            raise AlreadyRunning(data_dir)
        time.sleep(0.01)
    return descriptor


@contextmanager
def try_lock(folder: Path) -> Iterator[bool]:
    """Lock the folder for the block; the value says whether that succeeded."""
    descriptor = _try_lock(folder, fcntl.LOCK_EX)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def is_locked(data_dir: Path) -> bool:
    """Whether another process holds the lock on this folder now, for a data folder its supervisor."""
    if not data_dir.is_dir():
        return False
    descriptor = _try_lock(data_dir, fcntl.LOCK_SH)
    if descriptor is None:
        return True
    os.close(descriptor)
    return False

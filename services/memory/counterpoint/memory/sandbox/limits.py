"""Limits that a worker process imposes on itself. It is run as a file, and imports nothing else of this package."""

import ctypes
import os
import resource
import sys
from contextlib import suppress
from pathlib import Path

_PR_SET_NO_NEW_PRIVS = 38


def drop_rights() -> None:
    """Write no file, gain no privilege, and be the first to end where memory is scarce."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for kind in (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE):
        resource.setrlimit(kind, (0, 0))


def limit_memory(limit_bytes: int, *, further: bool = False) -> None:
    """Limit the address space to so much, or to so much more than is mapped now."""
    if further:
        if sys.platform != "linux":
            return
        limit_bytes += int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))


def close() -> None:
    """Drop the right to open anything and to start processes: what is needed is imported and open."""
    for kind in (resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE):
        resource.setrlimit(kind, (0, 0))

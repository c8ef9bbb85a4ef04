"""Processor time and memory of processes, read from `/proc`."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from counterpoint.local.endpoints import Endpoints

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def descendants(pid: int) -> set[int]:
    """Return every descendant of `pid`, in any session."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    found, level = set[int](), {pid}
    while level:
        level = {child for child, parent in parents.items() if parent in level}
        found |= level
    return found


def cpu_seconds(endpoints: Endpoints) -> dict[str, float]:
    """Return the processor time that each service and engine has used with its descendants, by name."""
    pids: list[tuple[str, int | None]] = [(name, service.pid) for name, service in endpoints.services.items()]
    pids += [(name, engine.pid) for name, engine in endpoints.engines.items()]
    return {name: sum(map(_cpu_seconds, _tree(pid))) for name, pid in pids if pid}


def pss_mb(pids: Iterable[int]) -> float:
    """Return the proportional set size of these processes, in MiB: a shared page counts in parts.

    The kernel shows that of memory to root alone; to others its resident memory counts.
    """
    total = 0.0
    for pid in pids:
        try:
            lines = list(_lines(Path(f"/proc/{pid}/smaps_rollup")))
        except PermissionError:
            total += _rss_mb(pid)
        else:
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return total


def tree_pss_mb(pid: int) -> float:
    """Return the proportional set size of a process and its descendants, in MiB."""
    return pss_mb(_tree(pid))


def tree_rss_mb(pid: int) -> float:
    """Return the resident memory of a process and its descendants, in MiB."""
    return sum(map(_rss_mb, _tree(pid)))


def _rss_mb(pid: int) -> float:
    return sum(int(line.split()[1]) for line in _lines(Path(f"/proc/{pid}/statm"))) * _PAGE_BYTES / 2**20


def _tree(pid: int) -> set[int]:
    return {pid, *descendants(pid)}


def _cpu_seconds(pid: int) -> float:
    for line in _lines(Path(f"/proc/{pid}/stat")):
        fields = line.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    return 0.0


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file; none where the process has ended."""
    try:
        yield from path.read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return

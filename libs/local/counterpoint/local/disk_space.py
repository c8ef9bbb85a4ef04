"""Disk space: the minimum to start a stack, and the share of the bus's streams."""

import shutil
from pathlib import Path

from counterpoint.proto.errors import ErrorCode, Permanent, Problem

MIB = 1 << 20
STREAMS_BYTES = 512 * MIB, 8192 * MIB
"""Default minimum and maximum size of all streams together."""
RECORD_BYTES = 256 * MIB
"""Additional free space required for PostgreSQL."""
_SHARE = 8


def streams_bytes(free: int, configured: int | None) -> int:
    """Return the size of the streams: the given one, else a power of two, at most an eighth of the free bytes."""
    if configured is not None:
        return configured
    least, most = STREAMS_BYTES
    return min(most, max(least, 1 << max(0, (free // _SHARE).bit_length() - 1)))


def reserve_streams(data_dir: Path, configured: int | None) -> int:
    """Return the size of the streams of a data folder, counting their present files as free.

    Raises `Permanent` `disk_full` when too little space is free.
    """
    used = sum(file.stat().st_size for file in (data_dir / "nats").rglob("*") if file.is_file())
    free = shutil.disk_usage(data_dir).free
    streams = streams_bytes(free + used, configured)
    needed = max(0, streams - used) + RECORD_BYTES
    if free < needed:
        problem = (
            f"its disk has {free // MIB} MiB free and needs {needed // MIB} MiB: {streams // MIB} MiB for the"
            f" streams of the bus (COUNTERPOINT_STREAMS_BYTES), {RECORD_BYTES // MIB} MiB for PostgreSQL"
        )
        raise Permanent(ErrorCode.DISK_FULL, (Problem(field=str(data_dir), problem=problem),))
    return streams

"""Disk space: how much a stack needs to start, and how much of it the streams of the bus may take."""

import shutil
from pathlib import Path

from counterpoint.proto.errors import Permanent, Problem

MIB = 1 << 20
STREAMS_BYTES = 512 * MIB, 8192 * MIB
"""The least and the most that the streams together get of a disk, unless a setting says otherwise."""
RECORD_BYTES = 256 * MIB
"""What has to be free besides, for the record to begin with."""
_SHARE = 8


def streams_bytes(free: int, given: int | None) -> int:
    """Return what the streams get of so many free bytes: what is given, else a power of two, an eighth at most."""
    if given is not None:
        return given
    least, most = STREAMS_BYTES
    return min(most, max(least, 1 << max(0, (free // _SHARE).bit_length() - 1)))


def room(data_dir: Path, given: int | None) -> int:
    """Return what the streams of a data folder get. Raises `Permanent` `disk_full` when there is less room than that.

    What they hold already is theirs.
    """
    held = sum(file.stat().st_size for file in (data_dir / "nats").rglob("*") if file.is_file())
    free = shutil.disk_usage(data_dir).free
    streams = streams_bytes(free + held, given)
    needed = max(0, streams - held) + RECORD_BYTES
    if free < needed:
        problem = (
            f"{free // MIB} MiB are free on its disk, {needed // MIB} MiB are needed: {streams // MIB} MiB for the"
            f" streams of the bus (COUNTERPOINT_STREAMS_BYTES), {RECORD_BYTES // MIB} MiB for the record to begin with"
        )
        raise Permanent("disk_full", (Problem(field=str(data_dir), problem=problem),))
    return streams

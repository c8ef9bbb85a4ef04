"""Disk space: writes stop when the disk is full, until there is room again."""

import asyncio
import shutil
import time
from pathlib import Path

import structlog
from prometheus_client import Gauge

from counterpoint.proto.errors import Away

log = structlog.get_logger()

FREE = Gauge("counterpoint_disk_free_bytes", "Free bytes of the disk that the data folder is on")
CHECK_EVERY_S = 1.0
_DATABASE_FULL_S = 5.0
"""Back-off after the database ran out of space, in seconds."""
_RESUME_FACTOR = 1.5
"""Multiple of the reserve that must be free before writes resume."""


class DiskSpace:
    """Watches the disk of a folder, and learns of a full disk of the database.

    The last `reserve_bytes` are left to the log of the database and the streams of the bus. Without a folder only the
    database is considered.
    """

    def __init__(self, folder: Path | None = None, reserve_bytes: int = 0) -> None:
        self._folder = folder
        self._reserve = reserve_bytes
        self._low = False
        self._database_full_until = 0.0

    @property
    def low(self) -> bool:
        """Whether writes are stopped."""
        return self._low or time.monotonic() < self._database_full_until

    def check(self) -> None:
        """Raise `Away` while writes are stopped."""
        if self.low:
            raise Away("the disk is full: memory is read-only until there is space")

    def database_full(self) -> None:
        """Take note that the database had no room."""
        if not self.low:
            log.error("disk.full", of="database")
        self._database_full_until = time.monotonic() + _DATABASE_FULL_S

    def check_space(self) -> None:
        """Compare the free space with the reserve."""
        if self._folder is None:
            return
        free = shutil.disk_usage(self._folder).free
        FREE.set(free)
        low = free < self._reserve * (_RESUME_FACTOR if self._low else 1)
        if low and not self._low:
            log.error("disk.full", of=str(self._folder), free_bytes=free, reserve_bytes=self._reserve)
        elif self._low and not low:
            log.warning("disk.recovered", of=str(self._folder), free_bytes=free)
        self._low = low

    async def watch(self) -> None:
        """Compare every second until cancelled."""
        while True:
            self.check_space()
            await asyncio.sleep(CHECK_EVERY_S)

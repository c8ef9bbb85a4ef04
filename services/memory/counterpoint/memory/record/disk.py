"""DiskSpace on the disk: where it runs out nothing is written any more, until there is room again."""

import asyncio
import shutil
import time
from pathlib import Path

import structlog
from prometheus_client import Gauge

from counterpoint.proto.errors import Away

log = structlog.get_logger()

FREE = Gauge("counterpoint_disk_free_bytes", "Free bytes of the disk that the data folder is on")
LOOK_EVERY_S = 1.0
_REFUSED_S = 5.0
"""Back-off after the database ran out of space, in seconds."""
_ENOUGH = 1.5
"""Times the reserve that has to be free before anything is written again."""


class DiskSpace:
    """Watches the disk of a folder, and hears of the database's where that is another one.

    The last `reserve_bytes` are left to those who cannot do without: the log of the database, the streams of the bus.
    Without a folder only the database is heard of.
    """

    def __init__(self, folder: Path | None = None, reserve_bytes: int = 0) -> None:
        self._folder = folder
        self._reserve = reserve_bytes
        self._low = False
        self._refused_until = 0.0

    @property
    def low(self) -> bool:
        """Whether nothing may be written now."""
        return self._low or time.monotonic() < self._refused_until

    def check(self) -> None:
        """Raise `Away` while nothing may be written."""
        if self.low:
            raise Away("the disk is full: memory is read-only until there is space")

    def refused(self) -> None:
        """Take note that the database had no room."""
        if not self.low:
            log.error("disk.full", of="database")
        self._refused_until = time.monotonic() + _REFUSED_S

    def look(self) -> None:
        """Compare what is free with the reserve."""
        if self._folder is None:
            return
        free = shutil.disk_usage(self._folder).free
        FREE.set(free)
        low = free < self._reserve * (_ENOUGH if self._low else 1)
        if low and not self._low:
            log.error("disk.full", of=str(self._folder), free_bytes=free, reserve_bytes=self._reserve)
        elif self._low and not low:
            log.warning("disk.recovered", of=str(self._folder), free_bytes=free)
        self._low = low

    async def watch(self) -> None:
        """Look every second, for ever."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_EVERY_S)

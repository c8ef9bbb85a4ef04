"""Runner of maintenance jobs: periodic work of the active process, one job after another in a fixed order."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from counterpoint.proto.errors import Transient

log = structlog.get_logger()

RETRY_S = 0.5
"""Delay before a failed job is retried, in seconds."""


@dataclass(frozen=True, slots=True)
class MaintenanceJob:
    """A maintenance job: its name, the interval between the end of a run and the next, in seconds, and its work.

    `work` raises `Transient` if the run has to be repeated.
    """

    name: str
    every_s: float
    work: Callable[[], Awaitable[object]]


class JobRunner:
    """Runs each job when its interval is over, at first all of them.

    Jobs that are due run in the order of the list. If one fails, those after it wait until it has succeeded.
    """

    def __init__(self, jobs: Sequence[MaintenanceJob]) -> None:
        self._jobs = tuple(jobs)
        self._due_at = {job.name: 0.0 for job in jobs}
        self._wake = asyncio.Event()

    def run_soon(self, name: str) -> None:
        """Make a job due now."""
        self._due_at[name] = 0.0
        self._wake.set()

    async def run(self) -> None:
        """Run the jobs for ever."""
        while True:
            self._wake.clear()
            pause_s = await self._round()
            try:
                await asyncio.wait_for(self._wake.wait(), pause_s)
            except TimeoutError:
                continue

    async def _round(self) -> float:
        """Run the jobs that are due; return the number of seconds until one is due again."""
        for job in self._jobs:
            if time.monotonic() < self._due_at[job.name]:
                continue
            # Before the work, so that a call of `run_soon` meanwhile is not lost.
            self._due_at[job.name] = float("inf")
            try:
                await job.work()
            except Transient as error:
                log.warning("maintenance.waiting", job=job.name, reason=str(error))
                self._due_at[job.name] = 0.0
                return RETRY_S
            self._due_at[job.name] = min(self._due_at[job.name], time.monotonic() + job.every_s)
        return max(0.0, min(self._due_at.values()) - time.monotonic())

"""Maintenance jobs: in their order, each at its interval, and none behind one that has failed."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from counterpoint.memory.maintenance import runner
from counterpoint.memory.maintenance.runner import JobRunner, MaintenanceJob
from counterpoint.proto.errors import Away

LONG_S = 3600.0


class Log:
    """Runs of jobs in their order; a waiter wakes at a number of them."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self._more = asyncio.Condition()

    def job(self, name: str, every_s: float = LONG_S, fails: Callable[[], bool] = lambda: False) -> MaintenanceJob:
        """A job that notes its run, and then fails or not."""

        async def work() -> None:
            async with self._more:
                self.runs.append(name)
                self._more.notify_all()
            if fails():
                raise Away("away")

        return MaintenanceJob(name, every_s, work)

    async def reached(self, number: int) -> list[str]:
        """The runs, as soon as there are so many."""
        async with asyncio.timeout(60), self._more:
            await self._more.wait_for(lambda: len(self.runs) >= number)
        return self.runs


@asynccontextmanager
async def running(*jobs: MaintenanceJob) -> AsyncIterator[JobRunner]:
    jobs_runner = JobRunner(jobs)
    task = asyncio.create_task(jobs_runner.run())
    try:
        yield jobs_runner
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_at_first_every_job_runs_in_order_and_then_the_one_that_is_wanted_soon() -> None:
    log = Log()
    async with running(log.job("a"), log.job("b"), log.job("c")) as jobs:
        assert await log.reached(3) == ["a", "b", "c"]
        jobs.run_soon("b")
        assert await log.reached(4) == ["a", "b", "c", "b"]


async def test_a_job_runs_again_after_its_interval() -> None:
    log = Log()
    async with running(log.job("seldom"), log.job("often", every_s=0.01)):
        assert (await log.reached(5))[:5] == ["seldom", "often", "often", "often", "often"]


async def test_jobs_behind_one_that_fails_wait_until_it_has_succeeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "RETRY_S", 0.01)
    log, failures = Log(), iter([True, True, False])
    async with running(log.job("a"), log.job("b", fails=lambda: next(failures)), log.job("c")):
        assert await log.reached(5) == ["a", "b", "b", "b", "c"]


async def test_a_job_wanted_while_it_runs_runs_once_more() -> None:
    log = Log()
    wanted = iter([True, False])

    def want() -> bool:
        if next(wanted):
            jobs.run_soon("a")
        return False

    async with running(log.job("a", fails=want), log.job("b")) as jobs:
        assert await log.reached(3) == ["a", "b", "a"]

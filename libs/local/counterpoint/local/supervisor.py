"""Supervision of processes: one that exits is restarted with increasing delay."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from time import monotonic
from typing import Any

import structlog

from counterpoint.local.process import ManagedProcess
from counterpoint.proto.errors import CounterpointError, Transient

log = structlog.get_logger(__name__)

_FIRST_DELAY_S = 0.05
_LONGEST_DELAY_S = 10.0
_STEADY_S = 30.0
"""Seconds of uptime after which the restart delay is reset."""


def restart_delay_s(deaths: int) -> float:
    """Return the delay in seconds before a restart, after `deaths` exits in a row."""
    return min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2.0 ** min(deaths, 16))


async def wait_all(work: Iterable[Awaitable[None]]) -> None:
    """Wait for all work to end, then raise the first failure."""
    for outcome in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


async def together(*work: Coroutine[Any, Any, None]) -> None:
    """Run the work concurrently; the first failure cancels the rest and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for each in work:
                group.create_task(each)
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None


class Supervisor:
    """Restarts processes. `spawned` is called after each start, `on_ready` when a restarted one is ready."""

    def __init__(self, spawned: Callable[[], None], on_ready: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        self._spawned = spawned
        self._on_ready = on_ready
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    def keep(self, child: ManagedProcess) -> None:
        """Start to restart the process when it exits."""
        self._keepers[child.name] = asyncio.create_task(self._keep(child), name=f"keep {child.name}")
        self._changed.set()

    async def release(self, child: ManagedProcess) -> None:
        """Stop restarting the process. Raises the failure of its supervision."""
        keeper = self._keepers.pop(child.name, None)
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait({keeper})
            if not keeper.cancelled():
                keeper.result()

    async def watch(self) -> None:
        """Wait until the supervision of a process fails, which is a defect, and raise its error."""
        while True:
            self._changed.clear()
            changed = asyncio.create_task(self._changed.wait())
            try:
                ended, _ = await asyncio.wait({*self._keepers.values(), changed}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()
            for keeper in ended - {changed}:
                if not keeper.cancelled():
                    keeper.result()

    async def stop(self, children: Iterable[ManagedProcess]) -> None:
        """Release and stop the processes concurrently."""

        async def end(child: ManagedProcess) -> None:
            try:
                await self.release(child)
            finally:
                await child.stop()

        await wait_all(end(child) for child in children)

    async def _keep(self, child: ManagedProcess) -> None:
        deaths = 0
        while True:
            since = monotonic()
            code = await child.exited()
            deaths = 0 if monotonic() - since > _STEADY_S else deaths
            delay_s = restart_delay_s(deaths)
            deaths += 1
            log.warning("child.ended", name=child.name, pid=child.pid, code=code, restart_in_s=delay_s)
            await asyncio.sleep(delay_s)
            try:
                await child.spawn()
                self._spawned()
                await child.until_ready(None)
                await _while_alive(child, self._on_ready(child.name))
            except (CounterpointError, OSError) as error:
                log.warning("child.restart_failed", name=child.name, reason=str(error).partition("\n")[0])
                await child.stop()
                continue
            log.info("child.restarted", name=child.name, pid=child.pid)


async def _while_alive(child: ManagedProcess, work: Coroutine[Any, Any, None]) -> None:
    """Run work that needs a process. Raises its errors, and `Transient` when the process exits first."""
    working, ended = asyncio.create_task(work), asyncio.create_task(child.exited())
    try:
        await asyncio.wait({working, ended}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Transient(f"{child.name} exited before it was ready")
        working.result()
    finally:
        for task in (working, ended):
            task.cancel()
        await asyncio.wait({working, ended})

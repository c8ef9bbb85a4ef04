"""Keeps children alive: what ends by itself is started again, with growing patience."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from time import monotonic
from typing import Any

import structlog

from counterpoint.local.child import Child
from counterpoint.proto.errors import CounterpointError, Transient

log = structlog.get_logger(__name__)

_FIRST_DELAY_S = 0.05
_LONGEST_DELAY_S = 10.0
_STEADY_S = 30.0
"""A child that lived this long before it died is restarted as if for the first time."""


def restart_delay_s(deaths: int) -> float:
    """How long to wait before a restart, after `deaths` earlier ones in a row."""
    return min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2.0 ** min(deaths, 16))


async def all_done(work: Iterable[Awaitable[None]]) -> None:
    """Wait for all of it, whatever fails, then raise the first failure."""
    for outcome in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


class Supervisor:
    """Restarts children. `spawned` is told of each new process, `back` is awaited when it answers again."""

    def __init__(self, spawned: Callable[[], None], back: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        self._spawned = spawned
        self._back = back
        self._keepers: dict[str, asyncio.Task[None]] = {}

    def keep(self, child: Child) -> None:
        """From now on restart it when it ends."""
        self._keepers[child.name] = asyncio.create_task(self._keep(child), name=f"keep {child.name}")

    async def release(self, child: Child) -> None:
        """From now on let it end. Raises what keeping it has failed with."""
        keeper = self._keepers.pop(child.name, None)
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait({keeper})
            if not keeper.cancelled():
                keeper.result()

    async def watch(self) -> None:
        """Wait until keeping a child has failed, which is a fault of ours, and raise it."""
        done, _ = await asyncio.wait(self._keepers.values(), return_when=asyncio.FIRST_EXCEPTION)
        for keeper in done:
            keeper.result()

    async def stop(self, children: Iterable[Child]) -> None:
        """Release and stop them, all at the same time."""

        async def end(child: Child) -> None:
            try:
                await self.release(child)
            finally:
                await child.stop()

        await all_done(end(child) for child in children)

    async def _keep(self, child: Child) -> None:
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
                await _while_alive(child, self._back(child.name))
            except (CounterpointError, OSError) as error:
                log.warning("child.restart_failed", name=child.name, reason=str(error).partition("\n")[0])
                await child.stop()
                continue
            log.info("child.restarted", name=child.name, pid=child.pid)


async def _while_alive(child: Child, work: Coroutine[Any, Any, None]) -> None:
    """Do this work with a child. Raises what it raises, and Transient when the child ends before it is done."""
    working, ended = asyncio.create_task(work), asyncio.create_task(child.exited())
    try:
        await asyncio.wait({working, ended}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Transient(f"{child.name} ended before it was of use")
        working.result()
    finally:
        for task in (working, ended):
            task.cancel()
        await asyncio.wait({working, ended})

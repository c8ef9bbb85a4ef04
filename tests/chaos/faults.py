"""The faults: the supervisor as a process of ours, and what of it is killed, in which order."""

import asyncio
import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

from chaos.house import AWAITS, orders_of

from counterpoint.bus.permissions import HOUSE as ACCOUNT
from counterpoint.local.endpoints import Endpoints, read_endpoints
from counterpoint.local.service import SERVICES
from counterpoint.proto import subjects
from counterpoint.proto.errors import Transient

HOUSE = Path(__file__).with_name("house.py")
REACHED_WITHIN_S = 300.0
"""Tasks come in all the while, so only an await that the code no longer has takes so long."""
NUDGES = {"memory.sweeping": "memory.committed", "memory.reconciling": "memory"}
"""Awaits that are only passed after another kill; it may hit a moment that leaves nothing to do, so it is repeated."""
NUDGED_EVERY_S = 20.0
RANDOM = ("nats", "postgres", "supervisor", "bus", *SERVICES)


class House:
    """The supervisor as a process of ours, on one data folder."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the supervisor and wait until all is ready. Raises `Transient` with its reason."""
        reading, writing = os.pipe()
        log = open(self.data_dir / "supervisor.log", "ab")  # noqa: ASYNC230, SIM115
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, str(HOUSE), "stack", str(self.data_dir / "data"), "--report-fd", str(writing),
                pass_fds=(writing,), stdout=log, stderr=log,
            )  # fmt: skip
        finally:
            os.close(writing)
            log.close()
        with open(reading, encoding="utf-8") as reports:  # noqa: ASYNC230
            said = await asyncio.to_thread(reports.read)
        last = json.loads(said.splitlines()[-1]) if said else {"failed": "it ended"}
        if last.get("stage") != "ready":
            raise Transient(f"the stack does not start: {last.get('failed')}")

    async def stop(self) -> None:
        """Stop it cleanly."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()

    async def kill(self, name: str) -> None:
        """SIGKILL a service, an engine, or the supervisor, which is then started again.

        With `bus` it is started again on a bus that has lost every stream but INTAKE, which others have filled.
        """
        if name in ("supervisor", "bus"):
            assert self._process is not None
            nats = self._pid("nats")
            self._process.kill()
            await self._process.wait()
            if name == "bus":
                while nats is not None and _cmdline(nats):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                for stream in set(subjects.STREAMS) - {subjects.INTAKE}:
                    shutil.rmtree(self.data_dir / "data" / "nats" / "jetstream" / ACCOUNT / "streams" / stream)
            await self.start()
            return
        while True:
            pid = self._pid(name)
            if pid is not None and str(self.data_dir).encode() in _cmdline(pid):
                os.kill(pid, signal.SIGKILL)
                return
            await asyncio.sleep(0.05)

    async def kill_at(self, name: str, passes: int) -> bool:
        """Have a service kill itself at a named await; False when it was not passed in time."""
        order = orders_of(self.data_dir / "data") / name
        order.write_text(str(0 if name in NUDGES else passes))
        until = time.monotonic() + REACHED_WITHIN_S
        while order.exists() and time.monotonic() < until:
            if name in NUDGES:
                nudge = NUDGES[name]
                await (self.kill_at(nudge, 0) if nudge in AWAITS else self.kill(nudge))
            await _gone(order, min(until, time.monotonic() + NUDGED_EVERY_S))
        reached = not order.exists()
        order.unlink(missing_ok=True)
        return reached

    def endpoints(self) -> Endpoints:
        """The endpoints of the stack."""
        return read_endpoints(self.data_dir / "data")

    def _pid(self, name: str) -> int | None:
        try:
            told = self.endpoints()
        except Transient:
            return None
        return told.services[name].pid if name in told.services else told.engines[name].pid


async def _gone(path: Path, until: float) -> None:
    while path.exists() and time.monotonic() < until:  # noqa: ASYNC110, ASYNC240
        await asyncio.sleep(0.02)


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def kills_of(kills: int, choose: random.Random) -> list[str]:
    """Return the kills in order: every named await if there is room, the rest at random moments."""
    named = list(AWAITS)
    choose.shuffle(named)
    at_random = [RANDOM[n % len(RANDOM)] for n in range(max(kills - len(named), kills // 4))]
    chosen = [*named[: kills - len(at_random)], *at_random]
    choose.shuffle(chosen)
    return chosen

"""A managed process: start, readiness, stop and restart."""

import asyncio
import os
import signal
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

import structlog

from counterpoint.local.state_file import ProcessIdentity, ProcessRecord, StateFile
from counterpoint.proto.errors import Transient

log = structlog.get_logger(__name__)

_LAUNCH = str(Path(__file__).with_name("launch.py"))
_LOG_BYTES = 16 << 20
_TAIL_BYTES = 4096
_POLL_S = 0.02
_LEFTOVERS_S = 5.0


class ChildProcess(Protocol):
    """A child of this process: `asyncio.subprocess.Process`, or a fork of a template."""

    @property
    def pid(self) -> int:
        """Its pid."""
        ...

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for a signal, or None while it runs."""
        ...

    async def wait(self) -> int:
        """Wait for its end and return the exit code."""
        ...

    def send_signal(self, signal: int) -> None:
        """Send it a signal."""
        ...


class Forker(Protocol):
    """A process that forks others, which start faster and share its memory."""

    async def fork(self, module: str, program: "Program", log: BinaryIO) -> ChildProcess:
        """Fork a process that runs a module as this program. Raises `OSError` if it cannot."""
        ...


@dataclass(frozen=True)
class Program:
    """A program to run: its command, whole environment, and stop signals."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    log: Path
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals = signal.SIGKILL
    fds: tuple[int, ...] = ()
    """Open files that it inherits."""
    owned: Path | None = None
    """A folder that it must own, because it refuses to run as root."""
    forker: Forker | None = None
    """Forks it if it is a module of this interpreter."""

    @property
    def module(self) -> str | None:
        """The module of this interpreter that it runs, if it is one."""
        return self.argv[2] if self.argv[:2] == (sys.executable, "-m") and len(self.argv) == 3 else None


def _open_log(path: Path) -> BinaryIO:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > _LOG_BYTES:
        path.replace(path.with_suffix(".old.log"))
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb")


def _tail(path: Path, since_bytes: int) -> str:
    """Return the last lines of a program's log since its start."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(min(since_bytes, end), end - _TAIL_BYTES))
        return file.read().decode(errors="replace").strip()


async def spawn(program: Program) -> tuple[ChildProcess, int]:
    """Start a program in its own session; return it with the previous size of its log."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("a child dies with the thread that started it: start it from the main thread")
    owned = str(program.owned) if program.owned is not None and os.geteuid() == 0 else ""
    launch = (sys.executable, "-I", "-S", _LAUNCH, str(os.getpid()), str(int(program.death_signal)), owned)
    with _open_log(program.log) as output:
        since_bytes = output.seek(0, os.SEEK_END)
        if program.forker is not None and program.module is not None:
            try:
                return await program.forker.fork(program.module, program, output), since_bytes
            except OSError as error:
                log.warning("fork.failed", module=program.module, reason=str(error))
        process = await asyncio.create_subprocess_exec(
            *launch,
            *program.argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            env=dict(program.env),
            pass_fds=program.fds,
            cwd="/",
            start_new_session=True,
        )
        return process, since_bytes


def _end_session(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


async def run(name: str, program: Program, timeout_s: float = 120.0) -> None:
    """Run a program to completion. Raises `Transient` with the end of its log on failure or timeout."""
    process, since_bytes = await spawn(program)
    try:
        async with asyncio.timeout(timeout_s):
            code = await process.wait()
    except TimeoutError as error:
        raise Transient(f"{name} took longer than {timeout_s:g} s\n{_tail(program.log, since_bytes)}") from error
    finally:
        _end_session(process.pid)
        await process.wait()
    if code != 0:
        raise Transient(f"{name} failed with code {code}\n{_tail(program.log, since_bytes)}")


class ManagedProcess(ABC):
    """One named process. `start` returns when it is ready; the caller must `stop` it."""

    ready_timeout_s = 90.0
    drain_s = 15.0

    def __init__(self, name: str, state: StateFile) -> None:
        self.name = name
        self.ready = asyncio.Event()
        self.state = state
        self._process: ChildProcess | None = None
        self._program: Program | None = None
        self._since_bytes = 0

    @abstractmethod
    async def prepare(self) -> Program:
        """Prepare its files and return the program."""

    @abstractmethod
    async def answers(self) -> bool:
        """Whether this very process is ready."""

    @property
    def pid(self) -> int:
        """The pid of the running, or last, process."""
        if self._process is None:
            raise RuntimeError(f"{self.name} was never started")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start it and wait until it is ready. Raises `Transient` when it exits first, or on a timeout."""
        await self.spawn()
        await self.until_ready(self.ready_timeout_s)

    async def spawn(self) -> None:
        """Start it without waiting for readiness."""
        self.ready.clear()
        self._program = await self.prepare()
        self._process, self._since_bytes = await spawn(self._program)
        birth = ProcessIdentity.of(self._process.pid)
        if birth is not None:
            self.state.record(self.name, ProcessRecord(birth=birth, death_signal=self._program.death_signal))

    async def until_ready(self, timeout_s: float | None) -> None:
        """Wait until it is ready. Raises `Transient` when it exits first, or on a timeout."""
        ended = asyncio.ensure_future(self.exited())
        try:
            async with asyncio.timeout(timeout_s):
                while not ended.done() and not await self.answers():
                    await asyncio.wait({ended}, timeout=_POLL_S)
        except TimeoutError as error:
            raise Transient(f"{self.name} did not respond within {timeout_s:g} s\n{self._exit_text()}") from error
        finally:
            ended.cancel()
        if not self.running:
            raise Transient(f"{self.name} ended before it responded\n{self._exit_text()}")
        self.ready.set()

    async def exited(self) -> int:
        """Wait for its exit, kill its session, and return the exit code (negative: the signal)."""
        if self._process is None:
            raise RuntimeError(f"{self.name} was never started")
        process = self._process
        code = await process.wait()
        self.ready.clear()
        _end_session(process.pid)
        return code

    async def stop(self) -> None:
        """Stop it: send its stop signal, and SIGKILL after `drain_s` seconds."""
        if self._process is not None and self._program is not None:
            self.signal(self._program.stop_signal)
            try:
                await asyncio.wait_for(self.exited(), self.drain_s)
            except TimeoutError:
                log.warning("child.killed", name=self.name, drain_s=self.drain_s)
                self.signal(signal.SIGKILL)
                await self.exited()
        self.state.forget(self.name)

    async def kill(self) -> None:
        """Kill it by SIGKILL, simulating a fault."""
        self.signal(signal.SIGKILL)
        await self.exited()

    async def restart(self) -> None:
        """Stop it and start it on the same data and port."""
        await self.stop()
        await self.start()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process if it runs."""
        if self._process is not None and self._process.returncode is None:
            self.ready.clear()
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _exit_text(self) -> str:
        return _tail(self._program.log, self._since_bytes) if self._program is not None else ""


ProcessT = TypeVar("ProcessT", bound=ManagedProcess)


@asynccontextmanager
async def running(child: ProcessT) -> AsyncIterator[ProcessT]:
    """Run `child` for the duration of the block."""
    try:
        await child.start()
        yield child
    finally:
        await child.stop()


async def stop_leftovers(state: StateFile) -> None:
    """Stop processes of an earlier supervisor by their stop signals, and by SIGKILL after `_LEFTOVERS_S` seconds."""
    for name, left in state.children.items():
        if left.birth.is_alive():
            log.warning("orphan.swept", name=name, pid=left.birth.pid)
            await _end(left.birth, left.death_signal)
        state.forget(name)


async def _end(birth: ProcessIdentity, preferred: signal.Signals) -> None:
    for number in (preferred, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.kill(birth.pid, number)
        for _ in range(int(_LEFTOVERS_S / _POLL_S)):
            if not birth.is_alive():
                _end_session(birth.pid)
                return
            await asyncio.sleep(_POLL_S)
    raise Transient(f"process {birth.pid} does not end")

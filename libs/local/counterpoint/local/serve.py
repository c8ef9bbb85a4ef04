"""The supervisor program: in the foreground, or detached and reporting its progress until ready."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import structlog

from counterpoint.bus.logs import LossyStream
from counterpoint.local.endpoints import Endpoints
from counterpoint.local.lock import AlreadyRunning
from counterpoint.local.private_files import private_folder
from counterpoint.local.roll import SIGNAL, Roller
from counterpoint.local.stack import Progress, Stack
from counterpoint.proto.errors import CounterpointError, Transient

OnReady = Callable[[Endpoints], Coroutine[Any, Any, None]]
"""Work to do while the stack runs; cancelled when it stops."""


def serve(stack: Stack, on_ready: OnReady | None = None) -> None:
    """Run a stack until SIGINT, SIGTERM or SIGHUP, then stop it. Raises what `Stack.start` raises."""
    asyncio.run(_serve(stack, on_ready))


async def _serve(stack: Stack, on_ready: OnReady | None) -> None:
    stop_requested = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop_requested.set)
    roller = Roller(stack)
    asyncio.get_running_loop().add_signal_handler(SIGNAL, roller.request)
    stopping = asyncio.create_task(stop_requested.wait())
    working = asyncio.create_task(_work(stack, roller, on_ready))
    try:
        await asyncio.wait({stopping, working}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        stopping.cancel()
        working.cancel()
        await asyncio.wait({working})
        await stack.stop()


async def _work(stack: Stack, roller: Roller, on_ready: OnReady | None) -> None:
    await stack.start()
    further = () if on_ready is None else (on_ready(stack.endpoints),)
    await asyncio.gather(stack.watch(), roller.run(), *further)


class _Report:
    """Progress as JSON lines to the waiting parent, ending with `ready` or a failure."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def stage(self, stage: str, seconds: float) -> None:
        self._send({"stage": stage, "seconds": round(seconds, 3)}, last=stage == "ready")

    def failed(self, error: CounterpointError) -> None:
        self._send({"failed": str(error), "already_running": isinstance(error, AlreadyRunning)}, last=True)

    def _send(self, line: dict[str, object], last: bool) -> None:
        if self._descriptor is None:
            return
        try:
            os.write(self._descriptor, json.dumps(line).encode() + b"\n")
        except BrokenPipeError:
            last = True
        if last:
            os.close(self._descriptor)
            self._descriptor = None


def run_supervisor(stack: Callable[[Progress], Stack], report_fd: int | None) -> None:
    """Run the supervisor program: serve the stack; exit with code 1 and the reason on failure."""
    report = _Report(report_fd)
    structlog.configure(logger_factory=structlog.WriteLoggerFactory(LossyStream(sys.stdout)))  # type: ignore[arg-type]
    try:
        serve(stack(report.stage))
    except CounterpointError as error:
        report.failed(error)
        sys.exit(str(error))


def run_detached(argv: Sequence[str], data_dir: Path, progress: Progress) -> None:
    """Start a detached supervisor program, report its stages to `progress`, and return when it is ready.

    It gets the option `--report-fd N` for `run_supervisor`. Raises `AlreadyRunning` or `Transient`.
    """
    log_path = private_folder(private_folder(data_dir) / "logs") / "supervisor.log"
    reading, writing = os.pipe()
    with open(os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb") as output:
        supervisor = subprocess.Popen(
            [*argv, "--report-fd", str(writing)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(writing,),
            start_new_session=True,
        )
    os.close(writing)
    with open(reading, encoding="utf-8") as reports:
        for line in reports:
            report = json.loads(line)
            if "failed" in report:
                supervisor.wait()
                raise AlreadyRunning(data_dir) if report["already_running"] else Transient(report["failed"])
            progress(report["stage"], report["seconds"])
            if report["stage"] == "ready":
                supervisor.returncode = 0  # keeps Popen from warning about the running process
                return
    raise Transient(f"the supervisor ended with code {supervisor.wait()}, see {log_path}")

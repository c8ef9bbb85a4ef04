"""The supervisor's side of the template that the processes of a stack are forked from at its start."""

import asyncio
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from counterpoint.local.process import ChildProcess, Program, spawn
from counterpoint.local.template import ForkRequest

_PR_SET_CHILD_SUBREAPER = 36


class ForkedProcess:
    """A fork that this process has adopted, with the part of `asyncio.subprocess.Process` that is needed."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = asyncio.Event()
        self._pidfd = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._reap)

    async def wait(self) -> int:
        """Wait for its end; return the exit code (negative: the signal)."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal if it has not ended."""
        if self.returncode is None:
            signal.pidfd_send_signal(self._pidfd, number)

    def _reap(self) -> None:
        _, status = os.waitpid(self.pid, 0)
        self.returncode = os.waitstatus_to_exitcode(status)
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._ended.set()


class Template:
    """A running template. Use it on the main thread of one event loop, and close it."""

    def __init__(self, channel: socket.socket, process: ChildProcess) -> None:
        self._channel = channel
        self._process = process
        self._turn = asyncio.Lock()

    @property
    def pid(self) -> int:
        """Its pid."""
        return self._process.pid

    @classmethod
    async def start(cls, env: Mapping[str, str], log: Path) -> "Template":
        """Start a template with the environment that all its forks have in common."""
        ours, its = socket.socketpair()
        ours.setblocking(False)
        with its:
            argv = (sys.executable, "-m", "counterpoint.local.template", str(its.fileno()))
            process, _ = await spawn(Program(argv=argv, env=env, log=log, fds=(its.fileno(),)))
        return cls(ours, process)

    async def fork(self, module: str, program: Program, log: BinaryIO) -> ForkedProcess:
        """Fork a process that runs a module. Raises `OSError` when the template has ended."""
        request = ForkRequest(
            module=module,
            env=dict(program.env),
            fds=program.fds,
            parent=os.getpid(),
            death_signal=program.death_signal,
        )
        async with self._turn:
            try:
                return await self._fork(request, log)
            except BaseException:
                self._channel.close()
                raise

    async def close(self) -> None:
        """End the template. Its forks go on."""
        self._channel.close()
        await self._process.wait()

    async def _fork(self, request: ForkRequest, log: BinaryIO) -> ForkedProcess:
        file = os.memfd_create("request")
        _adopt(True)
        try:
            os.write(file, request.model_dump_json().encode())
            os.lseek(file, 0, os.SEEK_SET)
            socket.send_fds(self._channel, [b"\0"], [file, log.fileno(), *request.fds])
            answer = await asyncio.get_running_loop().sock_recv(self._channel, 32)
        finally:
            os.close(file)
            _adopt(False)
        if not answer:
            raise ConnectionResetError("the template has ended")
        process = ForkedProcess(int(answer))
        self._channel.send(b"\0")
        return process


def _adopt(yes: bool) -> None:
    """Become, or cease to be, the parent of descendants whose own parents end."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")

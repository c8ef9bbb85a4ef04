"""A process that imports what all services share, and forks them.

Memory that a service never writes to stays shared with the others, and a service starts without these imports. It is
run as a module with the number of a socket: `python -m counterpoint.local.template FD`. Each message there carries open
files: a `ForkRequest`, the log, and those that the fork keeps. The answer is a pid; the fork begins when a byte has
acknowledged it. The end of the socket is the end of the template. Requests are read by the forks alone, so that no fork
has the secrets of another in its memory.
"""

import ctypes
import fcntl
import gc
import importlib
import os
import runpy
import socket
import sys
from typing import NoReturn

from pydantic import BaseModel, ConfigDict
from setproctitle import setproctitle

MOST_FILES = 8
_SHARED = ("counterpoint.bus.health", "counterpoint.bus.service")
_PR_SET_PDEATHSIG = 1
_ABOVE = 1000
"""Files are moved to numbers from here on while they take their places."""


class ForkRequest(BaseModel):
    """A module to run, its whole environment, and the numbers of the files that it keeps."""

    model_config = ConfigDict(frozen=True)

    module: str
    env: dict[str, str]
    fds: tuple[int, ...]
    parent: int
    """The pid that adopts it; the kernel sends `death_signal` when that process ends."""
    death_signal: int


def main(channel_fd: str) -> None:
    """Import, then fork until the end of the socket."""
    channel = socket.socket(fileno=int(channel_fd))
    # Its first call finds the place of the command line by the environment, which must not have changed yet.
    setproctitle(_title(__spec__.name))
    for name in _SHARED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    while True:
        message, files, _, _ = socket.recv_fds(channel, 1, MOST_FILES)
        if not message:
            return
        threads = len(os.listdir("/proc/self/task"))
        if threads != 1:
            sys.exit(f"a process with {threads} threads cannot be forked")
        pid, begin = _fork(channel, files)
        channel.sendall(str(pid).encode())
        os.write(begin, channel.recv(1))
        for file in (begin, *files):
            os.close(file)


def _fork(channel: socket.socket, files: list[int]) -> tuple[int, int]:
    """Return a fork whose parent has ended, so that it is adopted, and the file that lets it begin."""
    waiting, begin = os.pipe()
    reading, writing = os.pipe()
    between = os.fork()
    if between == 0:
        pid = os.fork()
        if pid == 0:
            for file in (begin, reading, writing):
                os.close(file)
            channel.close()
            _become(files, waiting)
        os.write(writing, str(pid).encode())
        os._exit(0)
    os.waitpid(between, 0)
    pid = int(os.read(reading, 32))
    for file in (waiting, reading, writing):
        os.close(file)
    return pid, begin


def _become(files: list[int], waiting: int) -> NoReturn:
    """Run the requested module in a session of its own."""
    os.setsid()
    if not os.read(waiting, 1):
        os._exit(1)
    os.close(waiting)
    with open(files[0], "rb") as request_file:
        request = ForkRequest.model_validate_json(request_file.read())
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, request.death_signal, 0, 0, 0)
    if os.getppid() != request.parent:
        sys.exit("the parent ended first")
    nothing = os.open(os.devnull, os.O_RDONLY)
    _place({0: nothing, 1: files[1], 2: files[1], **dict(zip(request.fds, files[2:], strict=True))})
    os.environ.clear()
    os.environ.update(request.env)
    del sys.argv[1:]
    setproctitle(_title(request.module))
    runpy.run_module(request.module, run_name="__main__", alter_sys=True)
    sys.exit()


def _title(module: str) -> str:
    return f"{sys.executable} -m {module}"


def _place(places: dict[int, int]) -> None:
    """Give each file the number that it has to have."""
    moved = {number: fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, _ABOVE) for number, file in places.items()}
    for file in set(places.values()):
        os.close(file)
    for number, file in moved.items():
        os.dup2(file, number)
        os.close(file)


if __name__ == "__main__":
    main(*sys.argv[1:])

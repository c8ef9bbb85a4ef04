"""A stack of real engines and small services, in this process or as a program."""

import sys
from argparse import ArgumentParser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from counterpoint.local.serve import run_supervisor
from counterpoint.local.service import SERVICES
from counterpoint.local.stack import Progress, Stack

PROGRAM = (sys.executable, __file__)
"""This module as a supervisor of its own."""
SERVICE = """
import os, signal, socket
signal.signal(signal.SIGTERM, signal.SIG_IGN if STUBBORN else signal.SIG_DFL)
server = socket.create_server(("127.0.0.1", int(os.environ["COUNTERPOINT_HEALTH_PORT"])))
while True:
    asked, _ = server.accept()
    asked.recv(65536)
    asked.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
    asked.close()
"""


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", code)


def commands(stubborn: bool = False) -> dict[str, tuple[str, ...]]:
    service = python(SERVICE.replace("STUBBORN", str(stubborn)))
    return {"migrate": python(""), "provision": python("print('provisioned')")} | dict.fromkeys(SERVICES, service)


def authorization(passwords: dict[str, str]) -> str:
    users = ", ".join(f'{{ user: {user}, password: "{password}" }}' for user, password in passwords.items())
    return f"authorization {{ users: [ {users} ] }}"


def stack_of(data_dir: Path, progress: Progress = lambda stage, seconds: None, **options: object) -> Stack:
    given = {"http_port": 0, "commands": commands(), "authorization": authorization} | options
    return Stack(data_dir, progress=progress, **given)  # type: ignore[arg-type]


@asynccontextmanager
async def started(stack: Stack) -> AsyncIterator[Stack]:
    await stack.start()
    try:
        yield stack
    finally:
        await stack.stop()


def environ_of(pid: int | None) -> str:
    return Path(f"/proc/{pid}/environ").read_text()


def _main() -> None:
    parser = ArgumentParser()
    parser.add_argument("data_dir", type=Path)
    parser.add_argument("--report-fd", type=int)
    given = parser.parse_args()
    run_supervisor(lambda progress: stack_of(given.data_dir, progress), given.report_fd)


if __name__ == "__main__":
    _main()

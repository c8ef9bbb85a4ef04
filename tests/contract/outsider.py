"""Another system: the address of the bus, a login, and its own programs."""

import asyncio
import json
import os
from dataclasses import dataclass
from typing import Any

from counterpoint.proto import subjects

TIMEOUT_S = 30
PROJECT = "orders"


@dataclass(frozen=True, slots=True)
class Bus:
    """Address of the bus, and each user's password."""

    url: str
    passwords: dict[str, str]
    project: str = PROJECT

    def environment(self, user: str) -> dict[str, str]:
        """The environment of another system's client."""
        return {
            "NATS_URL": self.url,
            "NATS_USER": user,
            "NATS_PASSWORD": self.passwords[user],
            "NATS_INBOX_PREFIX": subjects.inbox_prefix(user),
            "PROJECT": self.project,
        }


async def run(command: tuple[str, ...], environment: dict[str, str], task: Any) -> asyncio.subprocess.Process:
    """Start a client, hand it the task, and leave its output to be read."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env={"PATH": os.environ["PATH"], **environment},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(task).encode())
    process.stdin.close()
    return process


async def finish(process: asyncio.subprocess.Process) -> tuple[int | None, list[Any], str]:
    """The exit code, the JSON lines and the error output."""
    output, errors = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
    return process.returncode, [json.loads(line) for line in output.decode().splitlines()], errors.decode()

"""First connections to the database: of a job as its owner, and of the service, whose login is checked."""

import asyncio
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING

import asyncpg

from counterpoint.bus.first_connection import WAIT_S, NoAnswer, first_connection
from counterpoint.memory.record.database import is_refusal
from counterpoint.memory.record.preflight import UNREACHABLE, unreachable

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

_TIMEOUT_S = 10
_REPLACED_S = 10.0
"""Seconds in which a password that is being replaced may become that of the server."""
_STARTING = (
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InterfaceError,
    OSError,
    TimeoutError,
)
_FILES = (ssl.SSLError, FileNotFoundError, PermissionError)


async def connect_as_owner(url: str, wait_s: float = WAIT_S) -> "Connection":
    """Connect, and wait for a server that does not answer yet or starts. Raises `RefusedByServer` and `NoAnswer`."""
    return await first_connection(
        lambda: asyncpg.connect(url, timeout=_TIMEOUT_S),
        UNREACHABLE,
        lambda error: unreachable(url, error),
        _may_answer,
        wait_s,
    )


class LoginWatch:
    """Checks the login again whenever the server has refused a connection of the running service."""

    def __init__(self, url: str, refused_s: float = _REPLACED_S) -> None:
        self._url = url
        self._refused_s = refused_s
        self._refused = asyncio.Event()

    def refused(self) -> None:
        """Take note of a refusal."""
        self._refused.set()

    def missing(self) -> str | None:
        """Return what the service waits for; None without a refusal."""
        return "login" if self._refused.is_set() else None

    async def run(self) -> None:
        """Check until the login is refused for good. Raises `RefusedByServer`."""
        while True:
            await self._refused.wait()
            await check_login(self._url, self._refused_s)
            self._refused.clear()


async def check_login(url: str, refused_s: float = _REPLACED_S) -> None:
    """Log in once. A server that does not answer is not waited for: the service does that. Raises `RefusedByServer`."""
    with suppress(NoAnswer):
        connection = await first_connection(
            lambda: asyncpg.connect(url, timeout=_TIMEOUT_S),
            UNREACHABLE,
            lambda error: unreachable(url, error),
            _may_answer,
            wait_s=0,
            refused_s=refused_s,
        )
        await connection.close()


def _may_answer(error: Exception) -> bool:
    """Whether the server may let the job in later, without a change of the login, the database or a file."""
    return isinstance(error, _STARTING) and not (isinstance(error, _FILES) or is_refusal(error))

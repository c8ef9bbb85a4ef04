"""First connections to the database: of a job as its owner, and of the service, whose login is checked."""

import ssl
from contextlib import suppress
from typing import TYPE_CHECKING

import asyncpg

from counterpoint.bus.first_connection import WAIT_S, Unanswered, first_connection
from counterpoint.memory.record.preflight import unreachable

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
    """Connect, and wait for a server that does not answer yet or starts. Raises `RefusedByServer` and `Unanswered`."""
    return await first_connection(
        lambda: asyncpg.connect(url, timeout=_TIMEOUT_S), lambda error: unreachable(url, error), _may_answer, wait_s
    )


async def check_login(url: str, refused_s: float = _REPLACED_S) -> None:
    """Log in once. A server that does not answer is not waited for: the service does that. Raises `RefusedByServer`."""
    with suppress(Unanswered):
        connection = await first_connection(
            lambda: asyncpg.connect(url, timeout=_TIMEOUT_S),
            lambda error: unreachable(url, error),
            _may_answer,
            wait_s=0,
            refused_s=refused_s,
        )
        await connection.close()


def _may_answer(error: Exception) -> bool:
    """Whether the server may let the job in later, without a change of the login, the database or a file."""
    # A pooler refuses a login by the code of a broken protocol.
    refused = isinstance(error, _FILES) or "authentication failed" in str(error)
    return isinstance(error, _STARTING) and not refused

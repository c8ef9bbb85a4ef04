"""The connection of a job as the owner of the database."""

import ssl
from typing import TYPE_CHECKING

import asyncpg

from counterpoint.bus.first_connection import WAIT_S, first_connection
from counterpoint.memory.record.preflight import unreachable

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

_TIMEOUT_S = 10
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


def _may_answer(error: Exception) -> bool:
    """Whether the server may let the job in later, without a change of the login, the database or a file."""
    # A pooler refuses a login by the code of a broken protocol.
    refused = isinstance(error, _FILES) or "authentication failed" in str(error)
    return isinstance(error, _STARTING) and not refused

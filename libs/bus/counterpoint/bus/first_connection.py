"""The first connection of a job to a server: a server that does not answer yet is waited for, a refusal is final."""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import NoReturn, TypeVar

import structlog

from counterpoint.bus.check_result import CheckResult

T = TypeVar("T")

log = structlog.get_logger()

WAIT_S = 60.0
"""Seconds for which a job waits for a server, then it fails; what started it may repeat it."""
REFUSED = os.EX_CONFIG
"""The exit code of a job that a repetition cannot help: a login, a database or a stream has to be corrected."""
_RETRY_S = 1.0


class NoAnswer(Exception):
    """The server did not answer in time."""


class RefusedByServer(Exception):
    """The server answered and refused."""


async def first_connection(
    connect: Callable[[], Awaitable[T]],
    errors: tuple[type[Exception], ...],
    finding: Callable[[Exception], CheckResult],
    may_answer: Callable[[Exception], bool],
    wait_s: float = WAIT_S,
    refused_s: float = 0.0,
) -> T:
    """Return what `connect` returns, repeated for at most `wait_s` while its error is one that `may_answer` later.

    A refusal is repeated for at most `refused_s`, in which a server may load other logins. Raises `RefusedByServer` or
    `NoAnswer` with the server, the reason and what to do, as `finding` says it. `errors` are those of a connection;
    any other is raised at once.
    """
    begun = time.monotonic()
    while True:
        try:
            return await connect()
        except errors as error:
            found = finding(error)
            text = f"{found.detail}; {found.remedy}"
            answered = not may_answer(error)
            if time.monotonic() - begun >= (refused_s if answered else wait_s):
                raise (RefusedByServer if answered else NoAnswer)(text) from error
            log.warning("server.waiting", check=found.check, detail=found.detail)
            await asyncio.sleep(_RETRY_S)


def refusal_in(error: BaseException | None) -> RefusedByServer | None:
    """Return the refusal that an error is or contains, if any."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(refusal_in, error.exceptions)), None)
    return error if isinstance(error, RefusedByServer) else None


def end_job(reason: Exception) -> NoReturn:
    """End a job with the reason on standard error: exit code 1 if the server did not answer, else `REFUSED`."""
    print(reason, file=sys.stderr, flush=True)
    sys.exit(1 if isinstance(reason, NoAnswer) else REFUSED)

"""A job repeats its first connection after an error of the connection, and after no other error."""

from collections.abc import Callable

import pytest

from counterpoint.bus.check_result import CheckResult
from counterpoint.bus.first_connection import NoAnswer, RefusedByServer, first_connection


class Attempts:
    """Attempts to connect, each of which raises an error."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.count = 0

    async def connect(self) -> None:
        """Fail; the second time as a server that refuses the login."""
        self.count += 1
        raise self.error if self.count == 1 else PermissionError("wrong password")


def finding(error: Exception) -> CheckResult:
    """Return the failed check of a server that does not answer."""
    return CheckResult.failed("server", str(error), "start the server")


async def connected(
    error: Exception, may_answer: Callable[[Exception], bool], wait_s: float = 60.0
) -> tuple[Attempts, Exception]:
    """Connect, and return the attempts and the error that ends them."""
    attempts = Attempts(error)
    with pytest.raises(Exception) as ended:  # noqa: PT011 - the callers name it
        await first_connection(attempts.connect, (OSError,), finding, may_answer, wait_s)
    return attempts, ended.value


async def test_a_programming_error_of_the_connection_is_raised_at_once() -> None:
    error = TypeError("connect() got an unexpected keyword argument")
    attempts, ended = await connected(error, lambda _: True)
    assert (attempts.count, ended) == (1, error)


async def test_a_server_that_does_not_answer_is_asked_again() -> None:
    attempts, ended = await connected(ConnectionRefusedError(), lambda error: not isinstance(error, PermissionError))
    assert attempts.count == 2
    assert isinstance(ended, RefusedByServer)


async def test_the_end_of_the_time_is_told_from_a_refusal() -> None:
    attempts, ended = await connected(ConnectionRefusedError("no answer"), lambda _: True, wait_s=0)
    assert attempts.count == 1
    assert isinstance(ended, NoAnswer)
    assert str(ended) == "no answer; start the server"

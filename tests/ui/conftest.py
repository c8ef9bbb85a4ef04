"""The HTTP API of the router in front of a house in memory, and the API that the command line calls."""

from collections.abc import AsyncIterator, Iterator

import pytest
from ui.cli_server import Played, playing
from ui.http_front import Running, listening, running

from counterpoint.router.api.application import HttpApi


@pytest.fixture(scope="module")
async def listener() -> AsyncIterator[tuple[HttpApi, str]]:
    """An application that listens, for all tests of a module."""
    async with listening() as found:
        yield found


@pytest.fixture
async def front(listener: tuple[HttpApi, str]) -> AsyncIterator[Running]:
    """The application with a house of its own."""
    async with running(*listener) as found:
        yield found


@pytest.fixture
def api() -> Iterator[Played]:
    """A server that plays the API."""
    with playing() as played:
        yield played

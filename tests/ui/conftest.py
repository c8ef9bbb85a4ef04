"""The HTTP API of the router in front of a house in memory, the API that the command line calls, and a browser."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from pydantic import SecretStr
from ui.cli_server import ScriptedApi, playing
from ui.http_front import RunningFront, listening, running
from ui.ingest_echo import Echo

from counterpoint.bus import BusSettings, Service
from counterpoint.local.credentials import load_credentials
from counterpoint.local.service import NATS_USERS
from counterpoint.local.stack import Stack
from counterpoint.router.api.application import HttpApi

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page


@pytest.fixture(scope="module")
async def listener() -> AsyncIterator[tuple[HttpApi, str]]:
    """An application that listens, for all tests of a module."""
    async with listening() as found:
        yield found


@pytest.fixture
async def front(listener: tuple[HttpApi, str]) -> AsyncIterator[RunningFront]:
    """The application with a house of its own."""
    async with running(*listener) as found:
        yield found


@pytest.fixture
def api() -> Iterator[ScriptedApi]:
    """A server that plays the API."""
    with playing() as played:
        yield played


@pytest_asyncio.fixture(scope="session")
async def chromium() -> "AsyncIterator[Browser]":
    """One Chromium for the whole run."""
    from ui.browser import browsing

    async with browsing() as browser:
        yield browser


@pytest.fixture
async def console_page(chromium: "Browser", stack: Stack) -> "AsyncIterator[Callable[..., Awaitable[Page]]]":
    """Return signed-in pages of the running stack's console, by token. Nothing may be logged as an error."""
    from ui.browser import ConsoleBrowser

    console = ConsoleBrowser(chromium, stack.endpoints.http)
    yield console.page
    await console.close()
    assert not console.errors


@pytest.fixture
def echo(api: ScriptedApi) -> Echo:
    """The API that answers for each document."""
    return Echo(api)


@pytest.fixture
async def router(stack: Stack) -> AsyncIterator[Service]:
    """A second connection of the router, for requests to memory."""
    password = load_credentials(stack.data_dir / "secrets.json", NATS_USERS).nats["router"]
    settings = BusSettings(nats_url=stack.endpoints.nats, nats_user="router", nats_password=SecretStr(password))
    service = Service("router", settings)
    await service.connection.open()
    yield service
    await service.connection.close()

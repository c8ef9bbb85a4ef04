"""Requests to the memory service, and the providers, receivers and forges outside of it."""

from collections.abc import AsyncIterator

import pytest
from agents.gateway_calls import OUTSIDE
from agents.gateway_world import Door, World, client, delegated, developer, gateway, world
from agents.hook_receiver import HookReceiver, hook_receiver
from agents.issue_house import KINDS
from agents.scripted_forge import ScriptedForge, scripted_forge
from memory_service.house import House

from counterpoint.client import Gateway, Memory
from counterpoint.manager.gateway.gateway import ModelGateway


@pytest.fixture
def door(house: House) -> Door:
    """Requests to the house."""
    return Door(house)


@pytest.fixture
async def outside(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """A provider and a search, and the environment in which LiteLLM finds the provider."""
    async with world() as made:
        monkeypatch.setenv("OPENAI_API_BASE", f"{made.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-nobody")
        yield made


@pytest.fixture
async def hook() -> AsyncIterator[HookReceiver]:
    """A receiver of webhooks."""
    async with hook_receiver() as receiver:
        yield receiver


@pytest.fixture
async def gateway_server(
    request: pytest.FixtureRequest, door: Door, outside: World
) -> AsyncIterator[tuple[str, ModelGateway]]:
    """A gateway with the limits `OUTSIDE` of the module, if it has its own, and its address."""
    async with gateway(door, getattr(request.module, "OUTSIDE", OUTSIDE)) as made:
        yield made


@pytest.fixture
async def model_client(gateway_server: tuple[str, ModelGateway]) -> AsyncIterator[Gateway]:
    """A client of that gateway."""
    made = client(gateway_server[0])
    yield made
    await made.close()


@pytest.fixture
async def memory(door: Door, project: str) -> Memory:
    """The memory of the developer that works on the task `t-1`."""
    return developer(door, await delegated(door.house, project, "t-1"))


@pytest.fixture(params=KINDS)
async def forge(request: pytest.FixtureRequest) -> AsyncIterator[ScriptedForge]:
    """A forge, of each kind."""
    async with scripted_forge(request.param) as started:
        yield started


@pytest.fixture
async def github() -> AsyncIterator[ScriptedForge]:
    """A forge like GitHub."""
    async with scripted_forge("github") as started:
        yield started

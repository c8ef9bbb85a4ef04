"""Requests to the memory service, and the providers and receivers outside of it."""

from collections.abc import AsyncIterator

import pytest
from agents.gateway_world import Door, World, world
from agents.hook_receiver import HookReceiver, hook_receiver
from memory_service.house import House


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

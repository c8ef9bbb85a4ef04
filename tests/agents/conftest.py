"""A memory on a PostgreSQL of this session's own, and the world outside of it."""

from collections.abc import AsyncIterator

import pytest
from agents.gateway_world import Door, World, world
from diode.memory_house import House

from counterpoint.local.postgres import run_postgres
from counterpoint.memory.migrate import migrate


@pytest.fixture(scope="session")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """The door, open."""
    async with run_postgres(tmp_path_factory.mktemp("house")) as postgres:
        await migrate(postgres.urls.owner)
        house = House(postgres.urls)
        await house.open()
        yield house
        await house.close()


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

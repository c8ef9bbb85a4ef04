"""A memory on a PostgreSQL of this session's own."""

from collections.abc import AsyncIterator

import pytest
from diode.memory_house import House

from counterpoint.local.postgres import run_postgres
from counterpoint.memory.migrate import migrate
from counterpoint.proto.ids import new_id


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
def project() -> str:
    """A project that no other test uses."""
    return f"p-{new_id()}"

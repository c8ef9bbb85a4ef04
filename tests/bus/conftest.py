"""One small house for all tests of the bus; those that break its memory or its bus leave it whole again."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from bus.lone_bus import CONFIG, Bus, provisioned
from bus.small_house import SmallHouse, alive, small_house

from counterpoint.bus import Service

FOLDER = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group the files that use the small house."""
    here = [item for item in items if item.path.is_relative_to(FOLDER)]
    in_house = {item.path for item in here if "house" in getattr(item, "fixturenames", ())}
    for item in here:
        if item.path in in_house:
            item.add_marker(pytest.mark.xdist_group("small house"))


@pytest.fixture(scope="session")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SmallHouse]:
    folder: Path = tmp_path_factory.mktemp("house")
    async with small_house(folder) as whole:
        yield whole


@pytest.fixture(scope="session")
async def router(house: SmallHouse) -> AsyncIterator[Service]:
    """A router without handlers: it only sends."""
    service = house.service("router")
    async with alive(service):
        yield service


@pytest.fixture(scope="session")
async def bus(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bus]:
    """A bus with nobody behind it, as the policy has it."""
    async with provisioned(tmp_path_factory.mktemp("permissions"), CONFIG) as server:
        yield server

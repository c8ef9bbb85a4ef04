"""Another system's client, and a bus with the streams, users and rights of the policy but nobody behind it."""

from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest
from contract.node_client import NodeClient, install
from contract.outsider import PROJECT, Bus
from nats.aio.client import Client

from counterpoint.bus.permissions import nats_config, users
from counterpoint.bus.provision import provision
from counterpoint.local.nats import run_nats
from counterpoint.proto import subjects


@pytest.fixture(scope="session")
def node_client() -> NodeClient:
    """The Node client, installed."""
    return install()


@pytest.fixture(scope="session")
async def bus(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bus]:
    """A NATS server, provisioned; its outsiders belong to one project."""
    passwords = {user: f"{user}-of-a-test" for user in users()}
    directory: Path = tmp_path_factory.mktemp("bus")
    async with run_nats(directory, nats_config(passwords, projects=(PROJECT,))) as server:
        await provision(server.url, "provisioner", passwords["provisioner"])
        yield Bus(server.url, passwords)


@pytest.fixture
async def memory(bus: Bus) -> AsyncIterator[Client]:
    """The bus as the memory service has it."""
    password, inbox = bus.passwords["memory"], subjects.inbox_prefix("memory").encode()
    async with await nats.connect(bus.url, user="memory", password=password, inbox_prefix=inbox) as client:
        yield client

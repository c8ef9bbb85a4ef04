"""Keys and logins are replaced while tasks come in, and tokens end, without a restart of the stack.

The supervisor is a process of its own, as `up --detach` starts it; the commands are those that a person runs.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from flows.test_upgrade import more

from counterpoint.bench.traffic import Traffic, traffic
from counterpoint.local.credentials import Credentials
from counterpoint.local.endpoints import Endpoints, read_endpoints
from counterpoint.local.listen_addresses import ListenAddresses
from counterpoint.local.up import down, up

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
COMMAND = Path(sys.executable).with_name("counterpoint")
RATE, IN_FLIGHT = 20.0, 6


@pytest.fixture
def data_dir(tmp_path: Path) -> Any:
    """A running stack's data folder."""
    folder = tmp_path / "data"
    up(folder, addresses=ListenAddresses(http_port=0), detach=True)
    yield folder
    down(folder)


@asynccontextmanager
async def under_traffic(data_dir: Path) -> AsyncIterator[Traffic]:
    """Have tasks come in, all of which end well."""
    async with traffic(read_endpoints(data_dir), "rotation", RATE, IN_FLIGHT) as tasks:
        await more(tasks)
        yield tasks
        await more(tasks)
    count = tasks.count
    assert (count.lost, count.doubled, count.unanswered, count.dead) == ([], [], [], [])
    assert (count.verified, count.retries["error"]) == (True, 0)


async def run(data_dir: Path, *arguments: str) -> dict[str, Any]:
    """Run a command on the data folder, while the loop goes on."""
    process = await asyncio.create_subprocess_exec(
        COMMAND, *arguments, "--json", "--data-dir", data_dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    found: dict[str, Any] = json.loads(output)
    return found


def credentials(data_dir: Path) -> Credentials:
    return Credentials.model_validate_json((data_dir / "secrets.json").read_bytes())


async def may_log_in(endpoints: Endpoints, user: str, password: str) -> bool:
    """Whether the bus takes a login, by its protocol: a client that is refused leaves its socket open."""
    at = urlsplit(endpoints.nats)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    login = json.dumps({"user": user, "pass": password, "verbose": False})
    writer.write(f"CONNECT {login}\r\nPING\r\n".encode())
    await reader.readline()
    answer = await reader.readline()
    writer.close()
    return answer.startswith(b"PONG")


async def test_keys_and_logins_are_replaced_and_services_rolled_under_traffic(data_dir: Path) -> None:
    before, endpoints = credentials(data_dir), read_endpoints(data_dir)
    async with under_traffic(data_dir) as tasks:
        rotated = await run(data_dir, "rotate", "keys")
        newest = before.signing_keys[0].id
        assert rotated == {"signs": newest + 1, "accepted": [newest + 1, newest], "in_force": True}
        await more(tasks)
        assert (await run(data_dir, "rotate", "bus"))["in_force"]
        await more(tasks)
        rolled = await run(data_dir, "roll")
        assert rolled["stages"] == ["migrate", "memory", "router", "manager", "developer", "lineage"]
    after, now = credentials(data_dir), read_endpoints(data_dir)
    assert after.nats["memory"] != before.nats["memory"]
    assert after.nats["publisher"] == before.nats["publisher"], "that of other systems stays"
    assert not await may_log_in(endpoints, "memory", before.nats["memory"])
    assert await may_log_in(endpoints, "memory", after.nats["memory"])
    assert {name: service.pid for name, service in now.services.items()}.items().isdisjoint(
        {name: service.pid for name, service in endpoints.services.items()}.items()
    )
    assert {name: engine.pid for name, engine in now.engines.items()} == {
        name: engine.pid for name, engine in endpoints.engines.items()
    }


async def test_the_token_of_a_principal_ends_with_its_revocation_without_a_restart(data_dir: Path) -> None:
    endpoints = read_endpoints(data_dir)
    made = await run(data_dir, "principal", "create", "ann", "--role", "read", "--in", "default")
    headers = {"Authorization": f"Bearer {made['token']}"}
    async with httpx.AsyncClient(base_url=endpoints.http, headers=headers, timeout=30, trust_env=False) as ann:
        assert (await ann.get("/v1/tasks")).status_code == 200
        await run(data_dir, "principal", "revoke", "ann")
        while (status := (await ann.get("/v1/tasks")).status_code) == 200:
            pass
        assert status == 401
    assert read_endpoints(data_dir).services == endpoints.services

"""The committed configuration of the bus is the policy's, and a real server takes it with passwords from outside."""

import asyncio
import json
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from urllib.parse import urlsplit

import nats
import pytest
from bus.small_house import eventually
from deploy.compose import ROOT
from scripts import load_script

from counterpoint.bus.permissions import users
from counterpoint.bus.provision import provision
from counterpoint.local.probe import ask
from counterpoint.local.settings import local_settings
from counterpoint.proto import subjects

FOLDER = ROOT / "deploy" / "nats"


def _generator() -> ModuleType:
    return load_script(FOLDER / "generate.py")


@dataclass(frozen=True)
class Server:
    """A server under the committed configuration."""

    url: str
    passwords: dict[str, str]


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """Ports and folder are others than in a container; everything else is as committed."""
    folder: Path = tmp_path_factory.mktemp("nats")
    passwords = {user: f"n{secrets.token_hex(12)}" for user in users()}
    variable = _generator().password_variable
    text = (FOLDER / "nats.conf").read_text()
    for there, here in (("0.0.0.0:4222", "127.0.0.1:-1"), ("127.0.0.1:8222", "127.0.0.1:-1"), ("/data", str(folder))):
        assert f'"{there}"' in text
        text = text.replace(f'"{there}"', f'"{here}"')
    (folder / "nats.conf").write_text(text)
    process = await asyncio.create_subprocess_exec(
        str(local_settings().nats_bin),
        "--config",
        str(folder / "nats.conf"),
        "--ports_file_dir",
        str(folder),
        env=os.environ
        | {variable(user): password for user, password in passwords.items()}
        | {"COUNTERPOINT_NATS_STORE_KEY": f"n{secrets.token_hex(32)}"},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        log = ""
        while "Server is ready" not in log:
            line = await asyncio.wait_for(process.stderr.readline(), 20)
            assert line, log
            log += line.decode()
        yield Server(await eventually(lambda: _url(folder, process.pid)), passwords)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


def _url(folder: Path, pid: int) -> str | None:
    """Return the address of the server once it has written its ports file, a moment after it is ready."""
    for ports in folder.glob(f"*_{pid}.ports"):
        with suppress(json.JSONDecodeError):
            return str(json.loads(ports.read_text())["nats"][0])
    return None


def test_the_committed_configuration_equals_the_generated_one() -> None:
    assert (FOLDER / "nats.conf").read_text() == _generator().document()


def test_it_holds_no_password() -> None:
    lines = [line for line in (FOLDER / "nats.conf").read_text().splitlines() if '"password"' in line]
    assert len(lines) == len(users())
    assert all(line.strip().startswith('"password": $COUNTERPOINT_NATS_PASSWORD_') for line in lines)


async def test_a_server_takes_it_and_lets_the_provisioner_make_the_streams(server: Server) -> None:
    await provision(server.url, "provisioner", server.passwords["provisioner"])


async def test_the_rights_are_those_of_the_policy(server: Server) -> None:
    refused = asyncio.Event()

    async def told(error: Exception) -> None:
        if "permissions violation" in str(error).lower():
            refused.set()

    client = await nats.connect(
        server.url,
        user="developer",
        password=server.passwords["developer"],
        inbox_prefix=subjects.inbox_prefix("developer").encode(),
        error_cb=told,
    )
    async with client:
        await client.publish("tasks.orders.completed", b"{}")
        await client.flush()
        await asyncio.wait_for(refused.wait(), 10)


@pytest.mark.parametrize(("password", "answer"), [(None, b"PONG"), ("$COUNTERPOINT_NATS_PASSWORD_MEMORY", b"-ERR")])
async def test_passwords_are_taken_from_the_environment(server: Server, password: str | None, answer: bytes) -> None:
    login = json.dumps({"user": "memory", "pass": password or server.passwords["memory"], "verbose": False})
    request = f"CONNECT {login}\r\nPING\r\n".encode()
    port = urlsplit(server.url).port
    assert port is not None
    assert answer in await ask(port, request, lambda received: b"PONG" in received or b"-ERR" in received)

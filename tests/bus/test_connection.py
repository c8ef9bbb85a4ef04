"""A connection through the bus's absences."""

import asyncio
import os
import shutil
import signal
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats as nats_client
import pytest
from bus.small_house import PASSWORDS, eventually, suspend

from counterpoint.bus import BusSettings
from counterpoint.bus.connection import Connection
from counterpoint.bus.permissions import nats_config
from counterpoint.bus.provision import provision
from counterpoint.local.nats import NatsServer, run_nats
from counterpoint.proto import subjects
from counterpoint.proto.errors import Away
from counterpoint.proto.tasks import TaskRouted

SUBJECT = subjects.of(TaskRouted.TYPE, "acme")


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with run_nats(tmp_path, nats_config(PASSWORDS)) as server:
        await provision(server.url, "provisioner", PASSWORDS["provisioner"])
        yield server


def settings(bus: NatsServer, user: str, **changes: Any) -> BusSettings:
    return BusSettings(nats_url=bus.url, nats_user=user, nats_password=PASSWORDS[user], rpc_timeout_s=0.5, **changes)


def connection(bus: NatsServer, user: str = "memory") -> Connection:
    return Connection(user, settings(bus, user))


async def count_messages(bus: NatsServer) -> int:
    """Return the number of messages in TASKS."""
    client = await nats_client.connect(
        bus.url,
        user="provisioner",
        password=PASSWORDS["provisioner"],
        inbox_prefix=subjects.inbox_prefix("provisioner").encode(),
    )
    state = (await client.jetstream().stream_info(subjects.TASKS)).state
    await client.close()
    return state.messages


async def test_a_connection_survives_an_absence_that_exhausts_other_clients(bus: NatsServer) -> None:
    closed = asyncio.Event()

    async def give_up() -> None:
        closed.set()

    async def complain(error: Exception) -> None:
        pass

    ours = connection(bus)
    await ours.open()
    other = await nats_client.connect(
        bus.url,
        user="memory",
        password=PASSWORDS["memory"],
        max_reconnect_attempts=2,
        reconnect_time_wait=0.25,
        closed_cb=give_up,
        error_cb=complain,
    )
    await bus.kill()
    await asyncio.wait_for(closed.wait(), 30)
    assert other.is_closed
    await bus.start()
    await eventually(lambda: ours.connected)
    assert ours.client.options["max_reconnect_attempts"] == -1
    await ours.close()


async def test_a_client_that_gives_up_ends_the_process(bus: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    ours = connection(bus)
    await ours.open()
    await ours.client.close()
    assert ended == [70]


async def test_a_connection_can_be_closed_while_the_bus_is_away(bus: NatsServer) -> None:
    ours = connection(bus)
    await ours.open()
    await bus.kill()
    await eventually(lambda: not ours.connected)
    await asyncio.wait_for(ours.close(), 5)
    assert ours.client.is_closed


async def test_requests_and_publications_say_at_once_that_the_bus_is_away(bus: NatsServer) -> None:
    ours = connection(bus)
    await ours.open()
    await bus.kill()
    await eventually(lambda: not ours.connected)
    with pytest.raises(Away):
        await asyncio.wait_for(ours.request(subjects.query("memory"), b"", 30), 1)
    with pytest.raises(Away):
        await asyncio.wait_for(ours.publish(SUBJECT, b"{}", {}), 1)
    await ours.close()


async def test_a_repeated_publication_after_a_timeout_is_a_duplicate(bus: NatsServer) -> None:
    ours = connection(bus)
    await ours.open()
    said = {"Nats-Msg-Id": "m1"}
    await suspend(bus)
    stored = await ours.publish(SUBJECT, b"{}", dict(said))
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(stored), 10)
    bus.signal(signal.SIGCONT)
    await eventually(lambda: count_messages(bus))
    again = await (await ours.publish(SUBJECT, b"{}", dict(said)))
    assert again.duplicate
    assert await count_messages(bus) == 1
    await ours.close()


async def test_a_publication_lost_with_the_server_is_given_back(bus: NatsServer) -> None:
    ours = connection(bus)
    await ours.open()
    await suspend(bus)
    stored = await ours.publish(SUBJECT, b"{}", {"Nats-Msg-Id": "m1"})
    await bus.kill()
    await eventually(stored.done)
    assert stored.cancelled()
    await bus.start()
    await eventually(lambda: ours.connected)
    assert await count_messages(bus) == 0
    await ours.close()


async def test_an_emptied_stream_says_that_all_before_now_is_gone(bus: NatsServer) -> None:
    ours = connection(bus)
    await ours.open()
    fresh = await ours.stream_info(subjects.TASKS)
    assert fresh.kept_since is None
    await (await ours.publish(SUBJECT, b"{}", {"Nats-Msg-Id": "m1"}))
    assert (await ours.stream_info(subjects.TASKS)).kept_since is None
    client = await nats_client.connect(
        bus.url,
        user="provisioner",
        password=PASSWORDS["provisioner"],
        inbox_prefix=subjects.inbox_prefix("provisioner").encode(),
    )
    await client.jetstream().purge_stream(subjects.TASKS)
    await client.close()
    emptied = await ours.stream_info(subjects.TASKS)
    assert emptied.kept_since is not None
    assert emptied.kept_since > emptied.created
    await ours.close()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
async def test_a_server_is_trusted_by_the_ca_that_was_named_alone(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "ca.pem"
    made = await asyncio.create_subprocess_exec(
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"),
        *("-subj", "/CN=bus", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)),
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert await made.wait() == 0
    text = nats_config(PASSWORDS) + f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}\n'
    async with run_nats(tmp_path / "nats", text) as server:
        known = settings(server, "provisioner", nats_ca=certificate)
        await provision(server.url, known.nats_user, known.nats_password.get_secret_value(), tls=known.tls())
        ours = Connection("memory", settings(server, "memory", nats_ca=certificate))
        await ours.open()
        assert await ours.backlog(subjects.ADVISORIES, "memory") == 0
        await ours.close()
        with pytest.raises(ssl.SSLError):
            await nats_client.connect(server.url, allow_reconnect=False, error_cb=_quiet)


async def _quiet(error: Exception) -> None:
    """Raise also what is refused."""

"""Logins of the embedded bus are changed while it runs."""

import asyncio
import json
from pathlib import Path

import nats
from nats.aio.client import Client

from counterpoint.local.nats import NatsServer, run_nats


def users(**passwords: str) -> str:
    listed = ", ".join(f'{{user: {user}, password: "{password}"}}' for user, password in passwords.items())
    return f"accounts {{ HOUSE: {{ jetstream: enabled, users: [{listed}] }} }}"


class Login:
    """A client's login; `lost` when the server has ended it."""

    def __init__(self, server: NatsServer, user: str, password: str) -> None:
        self._login = server.url, user, password
        self.lost = asyncio.Event()

    async def open(self) -> Client:
        """Connect."""
        url, user, password = self._login

        async def lost() -> None:
            self.lost.set()

        async def quiet(_: Exception) -> None:
            return

        return await nats.connect(
            url, user=user, password=password, allow_reconnect=False, disconnected_cb=lost, error_cb=quiet
        )


async def refused(server: NatsServer, user: str, password: str) -> bool:
    """Whether the server refuses a login, by its protocol: a client that is refused leaves its socket open."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    login = json.dumps({"user": user, "pass": password, "verbose": False})
    writer.write(f"CONNECT {login}\r\nPING\r\n".encode())
    await reader.readline()
    answer = await reader.readline()
    writer.close()
    return answer.startswith(b"-ERR 'Authorization Violation'")


async def test_a_new_password_ends_the_sessions_of_its_user_alone_and_keeps_the_streams(tmp_path: Path) -> None:
    async with run_nats(tmp_path, users(memory="m1", router="r1")) as server:
        staying, leaving = Login(server, "memory", "m1"), Login(server, "router", "r1")
        memory, router = await staying.open(), await leaving.open()
        await memory.jetstream().add_stream(name="TASKS", subjects=["tasks"])
        await memory.jetstream().publish("tasks", b"before")
        server.reload(users(memory="m1", router="r2"))
        await leaving.lost.wait()
        assert await refused(server, "router", "r1")
        assert not await refused(server, "router", "r2")
        assert not staying.lost.is_set()
        await memory.jetstream().publish("tasks", b"after")
        assert (await memory.jetstream().stream_info("TASKS")).state.messages == 2
        await memory.close()
        await router.close()
        await server.restart()
        assert await refused(server, "router", "r1"), "the new configuration is that of the next start too"

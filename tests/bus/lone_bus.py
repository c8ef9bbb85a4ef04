"""A bus with nobody behind it: a real NATS with the accounts, streams and consumers of the policy."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import nats
from bus.rights import MINE, STREAMS
from nats.js.client import JetStreamContext
from pydantic import SecretStr

from counterpoint.bus import BusSettings
from counterpoint.bus.connection import Connection
from counterpoint.bus.permissions import nats_config, users
from counterpoint.bus.provision import provision
from counterpoint.local.nats import run_nats
from counterpoint.proto import subjects


@dataclass(frozen=True)
class Bus:
    """A server with nobody behind it."""

    url: str
    port: int
    passwords: dict[str, str]

    async def state(self) -> dict[tuple[str, ...], tuple[object, ...]]:
        """Return the configuration and content of streams and consumers."""
        async with await self.client("provisioner") as client:
            js = client.jetstream()
            streams = {(info.config.name,): (info.config, info.state.last_seq) for info in await js.streams_info()}
            consumers = {
                (name, info.name): (info.config, info.num_pending, info.num_ack_pending)
                for (name,) in streams
                for info in await js.consumers_info(name)
            }
        return {**streams, **consumers}

    async def held(self) -> dict[str, int]:
        """Return the number of messages in the streams by subject."""
        async with await self.client("provisioner") as client:
            infos = [await client.jetstream().stream_info(stream, subjects_filter=">") for stream in STREAMS]
        return {name: count for info in infos for name, count in (info.state.subjects or {}).items()}

    async def client(self, user: str) -> nats.NATS:
        """The usual client library, logged in as a user."""
        return await login(self, user)


class _Server(Protocol):
    @property
    def url(self) -> str: ...


async def login(server: _Server, user: str) -> nats.NATS:
    """The usual client library, logged in as a user with the password of `PASSWORDS`."""
    inbox = f"_INBOX_{user}".encode()
    return await nats.connect(server.url, user=user, password=PASSWORDS[user], inbox_prefix=inbox, error_cb=_ignore)


async def _ignore(error: Exception) -> None:
    """A refusal shows in what does not happen."""


PASSWORDS = {user: f"{user}-of-a-test" for user in users()}
CONFIG = nats_config(PASSWORDS, (MINE,))
"""The publisher and the observer belong to one project."""


@asynccontextmanager
async def provisioned(folder: Path, config: str) -> AsyncIterator[Bus]:
    """A server with the streams and consumers of the policy."""
    async with run_nats(folder, config) as server:
        await provision(server.url, "provisioner", PASSWORDS["provisioner"])
        yield Bus(server.url, server.port, PASSWORDS)


@dataclass
class Memory:
    """The bus as memory has it, and the callers that it has answered, by saying what they said."""

    connection: Connection
    asked: list[str] = field(default_factory=list)

    async def answer(self, caller: str, body: bytes) -> bytes:
        """The answer to a request."""
        self.asked.append(caller)
        return body


@asynccontextmanager
async def answering(bus: Bus) -> AsyncIterator[Memory]:
    """Memory answers, by the bus library."""
    settings = BusSettings(nats_url=bus.url, nats_user="memory", nats_password=SecretStr(bus.passwords["memory"]))
    memory = Memory(Connection("memory", settings))
    await memory.connection.open()
    try:
        for subject in (request("*") for request in subjects.REQUESTS):
            await memory.connection.respond(subject, memory.answer)
        await memory.connection.client.flush()
        yield memory
    finally:
        await memory.connection.close()


async def bind(js: JetStreamContext, durable: str) -> JetStreamContext.PullSubscription:
    """A pull subscription to a consumer of TASKS."""
    return await js.pull_subscribe_bind(durable, "TASKS", inbox_prefix=b"_INBOX_developer.")


async def drained(subscription: JetStreamContext.PullSubscription) -> AsyncIterator[nats.aio.msg.Msg]:
    """All that waits."""
    while True:
        try:
            batch = await subscription.fetch(50, timeout=0.5)
        except TimeoutError:
            return
        for message in batch:
            yield message

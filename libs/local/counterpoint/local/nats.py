"""NATS with JetStream."""

import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from counterpoint.local.child import Program, running, sweep
from counterpoint.local.engine import Engine
from counterpoint.local.private import write_private
from counterpoint.local.probe import ask
from counterpoint.local.settings import local_settings
from counterpoint.local.state import State

MAX_PAYLOAD_BYTES = 1 << 20
"""Above the contract's 256 KiB, so that a larger message reaches the router and is rejected with its reason."""


def jetstream(folder: str, store_key: str | None) -> str:
    """The `jetstream {}` block. The streams have sizes of their own, which nobody but the provisioner gives them.

    A limit of the server's would be a part of the disk that was free when it started, and above it no stream could be
    made smaller.
    """
    key = f"key: {store_key}, cipher: chachapoly, " if store_key else ""
    return f"jetstream {{ {key}max_file_store: 1TB, store_dir: {json.dumps(folder)} }}"


class Nats(Engine):
    """A NATS server. `authorization` is the text of its `authorization {}` block and may be changed between starts.

    With a `store_key` its streams are encrypted on disk, also those that were not before.
    """

    def __init__(
        self,
        directory: Path,
        authorization: str,
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
        state: State | None = None,
        log: Path | None = None,
        store_key: str | None = None,
    ) -> None:
        super().__init__("nats", directory, state, log)
        self.authorization = authorization
        self.max_payload_bytes = max_payload_bytes
        self._store_key = store_key
        self._server_name = ""

    @property
    def url(self) -> str:
        """Where it listens, without credentials."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        """The JetStream store."""
        return self.directory / "jetstream"

    async def prepare(self) -> Program:
        """Write the configuration, with a new server name by which our own process is recognised."""
        self._server_name = f"counterpoint-{secrets.token_hex(8)}"
        config = self.directory / "nats.conf"
        lines = (
            f'listen: "127.0.0.1:{self.port}"',
            f"server_name: {self._server_name}",
            f"max_payload: {self.max_payload_bytes}",
            jetstream(str(self.directory), json.dumps(self._store_key) if self._store_key else None),
            self.authorization,
        )
        write_private(config, "\n".join(lines) + "\n")
        return Program(argv=(str(local_settings().nats_bin), "-c", str(config)), env={}, log=self.log)

    async def answers(self) -> bool:
        """Does it greet as the server we named, with JetStream and asking for credentials?"""
        greeting = await ask(self.port, b"", lambda received: b"\r\n" in received)
        if not greeting.startswith(b"INFO "):
            return False
        told = json.loads(greeting[5:].partition(b"\r\n")[0])
        return (
            told["server_name"] == self._server_name
            and told.get("jetstream", False) is True
            and told.get("auth_required", False) is True
        )


@asynccontextmanager
async def run_nats(
    directory: Path, authorization: str, max_payload_bytes: int = MAX_PAYLOAD_BYTES, store_key: str | None = None
) -> AsyncIterator[Nats]:
    """A NATS server for the length of the block, alone in `directory`; its data stays there."""
    nats = Nats(directory, authorization, max_payload_bytes, store_key=store_key)
    await sweep(nats.state)
    async with running(nats):
        yield nats

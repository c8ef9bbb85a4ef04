"""NATS with JetStream."""

import json
import secrets
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from counterpoint.local.engine import Engine
from counterpoint.local.private_files import write_private
from counterpoint.local.probe import ask
from counterpoint.local.process import Program, running, stop_leftovers
from counterpoint.local.settings import local_settings
from counterpoint.local.state_file import StateFile

MAX_PAYLOAD_BYTES = 1 << 20
"""Above the contract's 256 KiB, so that a larger message reaches the router and is rejected there."""


def policy_authorization(passwords: dict[str, str] | None) -> str:
    """Return the NATS users and permissions of the policy; without passwords, for logins by certificate."""
    from counterpoint.bus.permissions import nats_config

    return nats_config(passwords, publishers=local_settings().publishers)


def jetstream(folder: str, store_key: str | None) -> str:
    """Return the `jetstream {}` block, without size limits: the provisioner sizes each stream.

    The server's default limit depends on the free disk at its start, and blocks shrinking streams above it.
    """
    key = f"key: {store_key}, cipher: chachapoly, " if store_key else ""
    return f"jetstream {{ {key}max_file_store: 1TB, store_dir: {json.dumps(folder)} }}"


class NatsServer(Engine):
    """A NATS server. `authorization` is its `accounts` or `authorization` block and may be changed between starts.

    With a `store_key` its streams are encrypted on disk, including existing ones.
    """

    def __init__(
        self,
        directory: Path,
        authorization: str,
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
        state: StateFile | None = None,
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
        """Its URL without credentials."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        """The folder of the JetStream store."""
        return self.directory / "jetstream"

    async def prepare(self) -> Program:
        """Write the configuration, with a new server name that identifies our process."""
        self._server_name = f"counterpoint-{secrets.token_hex(8)}"
        config = self._write_config()
        return Program(argv=(str(local_settings().nats_bin), "-c", str(config)), env={}, log=self.log)

    def reload(self, authorization: str) -> None:
        """Change users while the server runs. It disconnects those whose password is another one now."""
        self.authorization = authorization
        self._write_config()
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGHUP)

    def _write_config(self) -> Path:
        config = self.directory / "nats.conf"
        lines = (
            f'listen: "127.0.0.1:{self.port}"',
            f"server_name: {self._server_name}",
            f"max_payload: {self.max_payload_bytes}",
            jetstream(str(self.directory), json.dumps(self._store_key) if self._store_key else None),
            self.authorization,
        )
        write_private(config, "\n".join(lines) + "\n")
        return config

    async def answers(self) -> bool:
        """Whether it greets with our server name, with JetStream, and requires credentials."""
        greeting = await ask(self.port, b"", lambda received: b"\r\n" in received)
        if not greeting.startswith(b"INFO "):
            return False
        info = json.loads(greeting[5:].partition(b"\r\n")[0])
        return (
            info["server_name"] == self._server_name
            and info.get("jetstream", False) is True
            and info.get("auth_required", False) is True
        )


@asynccontextmanager
async def run_nats(
    directory: Path, authorization: str, max_payload_bytes: int = MAX_PAYLOAD_BYTES, store_key: str | None = None
) -> AsyncIterator[NatsServer]:
    """Run a NATS server in `directory` for the duration of the block; its data stays."""
    nats = NatsServer(directory, authorization, max_payload_bytes, store_key=store_key)
    await stop_leftovers(nats.state)
    async with running(nats):
        yield nats

"""Valkey, the second level of the cache."""

import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from counterpoint.local.engine import Engine
from counterpoint.local.private_files import private_folder, write_private
from counterpoint.local.probe import ask
from counterpoint.local.process import Program, running, stop_leftovers
from counterpoint.local.settings import local_settings
from counterpoint.local.state_file import StateFile

MAX_MEMORY_BYTES = 128 << 20
"""Memory limit above which the least recently used entries are evicted."""


class ValkeyServer(Engine):
    """A Valkey server with an append-only file, synced every second."""

    def __init__(self, directory: Path, password: str, state: StateFile | None = None, log: Path | None = None) -> None:
        super().__init__("valkey", directory, state, log)
        self._password = password

    @property
    def url(self) -> str:
        """Its URL with the password."""
        return f"redis://:{self._password}@127.0.0.1:{self.port}/0"

    @property
    def data(self) -> Path:
        """The folder of the append-only file."""
        return self.directory / "data"

    async def prepare(self) -> Program:
        """Write the configuration, since a password on the command line is visible to all processes."""
        config = self.directory / "valkey.conf"
        lines = (
            "bind 127.0.0.1",
            f"port {self.port}",
            f"dir {json.dumps(str(private_folder(self.data)))}",
            f"requirepass {json.dumps(self._password)}",
            "appendonly yes",
            'save ""',
            f"maxmemory {MAX_MEMORY_BYTES}",
            "maxmemory-policy allkeys-lru",
            "set-proc-title no",
        )
        write_private(config, "\n".join(lines) + "\n")
        return Program(argv=(str(local_settings().valkey_bin), str(config)), env={}, log=self.log)

    async def answers(self) -> bool:
        """Whether our process accepts the password and has loaded its data."""
        request = f"AUTH {self._password}\r\nPING\r\nINFO server\r\nQUIT\r\n".encode()
        reply = await ask(self.port, request, lambda received: False)
        lines = reply.split(b"\r\n")
        return lines[:2] == [b"+OK", b"+PONG"] and b"process_id:%d" % self.pid in lines


@asynccontextmanager
async def run_valkey(directory: Path, password: str | None = None) -> AsyncIterator[ValkeyServer]:
    """Run a Valkey server in `directory` for the duration of the block; its data stays."""
    valkey = ValkeyServer(directory, password or secrets.token_hex(24))
    await stop_leftovers(valkey.state)
    async with running(valkey):
        yield valkey

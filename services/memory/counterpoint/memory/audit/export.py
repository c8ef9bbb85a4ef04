"""Copies of checkpoints outside the database: an append-only file, and a stream of the bus."""

import asyncio
import os
from pathlib import Path
from typing import Protocol

from counterpoint.bus.connection import Connection
from counterpoint.memory.audit.note import Checkpoint
from counterpoint.proto import subjects
from counterpoint.proto.errors import Away

_ID = "Nats-Msg-Id"


class CheckpointCopy(Protocol):
    """One place outside the database that keeps checkpoints."""

    name: str

    async def read(self) -> str:
        """Return the notes in it, or the newest of them. Raises `Transient` if it cannot be read now."""

    async def add(self, checkpoint: Checkpoint) -> None:
        """Add a note durably. Raises `Transient`."""


class CheckpointFile:
    """A file of notes, one after the other. A partial last note of a crash is terminated, and skipped by readers."""

    name = "file"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "checkpoints"

    async def read(self) -> str:
        """Return all notes; none if there is no file yet. Raises `Away` for a file that cannot be read."""
        try:
            return await asyncio.to_thread(self._read)
        except OSError as error:
            raise Away(f"the file of checkpoints cannot be read: {error.strerror}") from error

    async def add(self, checkpoint: Checkpoint) -> None:
        """Append a note, and flush it to the disk. A write that has begun is finished despite cancellation."""
        await asyncio.shield(asyncio.to_thread(self._append, checkpoint.note))

    def _read(self) -> str:
        try:
            return self.path.read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def _append(self, note: str) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = not self.path.exists()
        handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            size = os.fstat(handle).st_size
            torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
            content = ("\n" if torn else "").encode() + note.encode()
            while content:
                content = content[os.write(handle, content) :]
            os.fsync(handle)
        finally:
            os.close(handle)
        if fresh:
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


class CheckpointStream:
    """A stream of the bus that denies deletion."""

    name = "bus"

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def read(self) -> str:
        """Return the newest note; none if the stream is empty."""
        info = await self._connection.stream_info(subjects.CHECKPOINTS)
        if info.last_seq == 0:
            return ""
        stored = await self._connection.stored_message(subjects.CHECKPOINTS, info.last_seq)
        return stored.data.decode(errors="replace") if stored else ""

    async def add(self, checkpoint: Checkpoint) -> None:
        """Publish a note."""
        stored = await self._connection.publish(
            subjects.CHECKPOINT,
            checkpoint.note.encode(),
            {_ID: f"checkpoint-{checkpoint.size}-{checkpoint.root.hex()[:16]}"},
        )
        await asyncio.wait([stored])
        if stored.cancelled() or stored.exception() is not None:
            raise Away("the checkpoint is not on the bus")

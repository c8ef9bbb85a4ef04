"""The lines of all tasks as a graph in Ladybug, one database per project, queried in Cypher."""

import asyncio
import ctypes
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from counterpoint.memory.projection import cypher, line_graph
from counterpoint.memory.projection.cypher import CypherResult
from counterpoint.memory.projection.handle_pool import HandlePool
from counterpoint.memory.projection.tier import RecordChange, Tier, TierPosition
from counterpoint.proto.errors import Away, CounterpointError

if TYPE_CHECKING:
    from ladybug import Connection

log = structlog.get_logger()

OPEN = 4
"""Maximum number of open databases. Each takes some 35 MB after the first write."""
_BUFFER_BYTES = 128 * 1024 * 1024
"""Size limit of a buffer pool: a checkpoint holds a whole group of rows, 131,072 of them, with their texts."""
_DATABASE_BYTES = 8 * 1024**3
_TRANSACTION_CHARS = 1_000_000
"""Size limit of one transaction: the engine buffers it several times over until its end."""
_THREADS = 2
_CHECKPOINT_BYTES = 8 * 1024 * 1024
"""Size of the write-ahead log from which it is checkpointed: a checkpoint writes the last group of rows as a whole, and
a restart replays this much in a third of a second."""
_M_PERTURB, _FREED_BYTE = -6, 0x5A
"""Option of glibc's `mallopt`, and the byte that freed memory is overwritten with."""


class Graph(Tier):
    """Graph of the line. It contains nothing with a label above `highest_label`, so that everyone who may query it may
    see all of it."""

    name = "graph"

    def __init__(self, root: Path, highest_label: int, *, keep: int = OPEN) -> None:
        self.highest_label = highest_label
        _overwrite_freed_memory()
        self._handles: HandlePool[_Database] = HandlePool(root, _Database, _Database.close, keep=keep)
        self._turns = asyncio.Semaphore(_THREADS)

    async def position(self, project: str, *, draft: bool = False) -> TierPosition | None:
        """Return the position of the projection in a project."""
        async with self._handles.handle(project, draft) as database:
            return await asyncio.to_thread(database.position)

    async def apply(
        self, project: str, changes: Sequence[RecordChange], position: TierPosition, *, draft: bool = False
    ) -> None:
        """Apply changes, in one transaction."""
        async with self._handles.handle(project, draft) as database:
            await asyncio.to_thread(database.write, changes, position, self.highest_label)

    async def drop(self, project: str, *, draft: bool = False) -> None:
        """Delete the project's folder."""
        await self._handles.drop(project, draft)

    async def swap(self, project: str) -> None:
        """Rename the draft's folder."""
        await self._handles.swap(project)

    async def close(self) -> None:
        """Close all databases."""
        await self._handles.close()

    async def cypher(
        self, project: str, query: str, parameters: Mapping[str, Any], limit: int, timeout_ms: int
    ) -> CypherResult:
        """Return the first `limit` rows. Raises `Away`, and `Permanent` `cypher` for a query that is not read-only, is
        invalid, or exceeds the limits of time and memory."""
        cypher.check_words(query)
        async with self._turns, self._handles.handle(project) as database:
            return await asyncio.to_thread(database.read, query, parameters, limit, timeout_ms)


class _Database:
    """One database: a connection that writes, and processes that read while it does not."""

    def __init__(self, path: Path) -> None:
        import ladybug

        self._engine = ladybug
        self._path = path / "line.lbug"
        # Small, and with one thread: there are several of them beside all other work of memory.
        self._database = ladybug.Database(
            self._path,
            buffer_pool_size=_BUFFER_BYTES,
            max_num_threads=1,
            max_db_size=_DATABASE_BYTES,
            auto_checkpoint=False,
        )
        self._writer = ladybug.Connection(self._database, num_threads=1)
        self._lock = threading.RLock()
        self._settled = False
        if not _rows(self._writer, "CALL show_tables() RETURN name", {}):
            for statement in filter(str.strip, line_graph.SCHEMA.split(";")):
                _rows(self._writer, statement, {})

    def close(self) -> None:
        with self._lock:
            self._writer.close()
            self._database.close()
        _give_back()

    def position(self) -> TierPosition | None:
        with self._lock, _failing("read"):
            position = line_graph.where(self._run)
            self._settled = position is not None
            return position

    def write(self, changes: Sequence[RecordChange], position: TierPosition, highest_label: int) -> None:
        """Apply changes in one transaction, or in several if one would be too large; the last one stores the
        position."""
        parts = line_graph.parts(changes, _TRANSACTION_CHARS)
        with self._lock:
            for part in parts[:-1]:
                self._write(part, line_graph.where(self._run) or TierPosition(position.life, 0), highest_label)
            self._write(parts[-1], position, highest_label)

    def _write(self, changes: Sequence[RecordChange], position: TierPosition, highest_label: int) -> None:
        try:
            with _failing("write"):
                self._run("BEGIN TRANSACTION", {})
                line_graph.write(self._run, changes, position, highest_label)
                self._run("COMMIT", {})
        except BaseException:
            self._writer.close()
            self._writer = self._engine.Connection(self._database, num_threads=1)
            self._checkpoint()
            raise
        ahead = self._path.with_name(self._path.name + ".wal")
        if ahead.exists() and ahead.stat().st_size > _CHECKPOINT_BYTES:
            self._checkpoint()

    def _checkpoint(self) -> None:
        try:
            self._run("CHECKPOINT", {})
        except RuntimeError as later:
            # A checkpoint waits for readers. Written changes are in the write-ahead log, so it can be retried later.
            log.info("graph.checkpoint_deferred", reason=str(later)[:200])

    def _run(self, query: str, parameters: Mapping[str, Any]) -> list[list[Any]]:
        return _rows(self._writer, query, parameters)

    def read(self, query: str, parameters: Mapping[str, Any], limit: int, timeout_ms: int) -> CypherResult:
        with self._lock:
            if not self._settled and self.position() is None:
                raise Away("the graph has no data of the project yet")
            return cypher.run(self._path, query, parameters, limit, timeout_ms)


def _give_back() -> None:
    """Return freed memory to the operating system: the C library keeps it otherwise."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def _overwrite_freed_memory() -> None:
    """Overwrite memory of this process when it is freed: the engine writes buffers to its file that it has not filled,
    and they would contain what the process has freed, for example a refused message."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None or not mallopt(_M_PERTURB, _FREED_BYTE):
        log.warning("graph.freed_memory_kept", reason="the C library cannot overwrite freed memory")


@contextmanager
def _failing(what: str) -> Iterator[None]:
    """Map every exception of the engine to `Away`: it has no common base class."""
    try:
        yield
    except CounterpointError:
        raise
    except Exception as error:
        raise Away(f"the graph engine could not {what}: {error}"[:300]) from error


def _rows(connection: "Connection", query: str, parameters: Mapping[str, Any]) -> list[list[Any]]:
    answer = connection.execute(query, dict(parameters))
    assert not isinstance(answer, list), "one statement"
    with answer:
        return [list(row) for row in answer]

"""The sequencer: keeps the tree over the leaves, and signs checkpoints of it. Leaves that an earlier release wrote
without a position get theirs.

Its state in RAM follows the record step by step, and is read again after any failure; so it may be killed anywhere. It
signs only extensions of everything that was ever published: otherwise leaves were lost or changed, and it reports that.
"""

import asyncio
import time
from collections.abc import Sequence

import structlog
from cachetools import LRUCache
from prometheus_client import Counter

from counterpoint.memory.audit.export import CheckpointCopy
from counterpoint.memory.audit.note import Checkpoint, NoteKey, ParsedNotes
from counterpoint.memory.audit.tiles import WIDTH, Nodes, RightEdge, TileId, hashes, nodes, tiles_of
from counterpoint.memory.audit.tree import Range, complete_root, leaf_hash
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.proto.errors import Transient

log = structlog.get_logger()

CHECKPOINTS = Counter("counterpoint_audit_checkpoints", "Checkpoints that were signed or refused", ["outcome"])

EVERY_LEAVES = 1000
EVERY_S = 60.0
_BATCH = 2000
_TILES_IN_RAM = 256
_EXTEND_DELAY_S = 2.0
"""Delay after a new leaf, in seconds, so that the tree is extended in batches; no request waits for it."""
_RETRY_S = 1.0

_SQL = load_statements(__package__)


class LogMismatch(Exception):
    """The log differs from a signed checkpoint; the text says in which way."""


class Sequencer:
    """Orders leaves and signs, in the one active memory process; a second one would do the same.

    `copies` are the places outside the database that checkpoints are written to, in this order.
    """

    def __init__(self, database: Database, key: NoteKey, copies: Sequence[CheckpointCopy]) -> None:
        self.key = key
        self._database = database
        self._copies = copies
        self._edge: RightEdge | None = None
        self._last: Checkpoint | None = None
        self._tiles: LRUCache[TileId, Nodes] = LRUCache(_TILES_IN_RAM)
        self._signed_at = 0.0
        self._uncopied: dict[str, Checkpoint] = {}
        self._turn = asyncio.Lock()
        self._wake = asyncio.Event()
        self.fault: str | None = None
        """Reason why nothing is signed any more, if attested leaves are missing."""

    def wake(self) -> None:
        """Take note of new leaves."""
        self._wake.set()

    async def run(self) -> None:
        """Order and sign until cancelled; then, at a clean stop, once more."""
        try:
            while True:
                try:
                    await self.once()
                    pause_s = self._pause_s()
                except Transient as error:
                    log.warning("audit.waiting", reason=str(error))
                    pause_s = _RETRY_S
                try:
                    await asyncio.wait_for(self._wake.wait(), pause_s)
                except TimeoutError:
                    continue
                self._wake.clear()
                await asyncio.sleep(_EXTEND_DELAY_S)
        finally:
            await self.close()

    def _pause_s(self) -> float:
        """Return the delay until the next signature is due."""
        unsigned = self._edge is not None and self._edge.size > (self._last.size if self._last else 0)
        return max(_EXTEND_DELAY_S, EVERY_S - (time.monotonic() - self._signed_at)) if unsigned else EVERY_S

    async def close(self) -> None:
        """Sign the current tree if that is possible within five seconds."""
        try:
            async with asyncio.timeout(5):
                await self.once(sign=True)
        except (Transient, TimeoutError) as error:
            log.warning("audit.unsigned", reason=type(error).__name__)

    async def once(self, *, sign: bool = False) -> None:
        """Order waiting leaves, add them to the tree, and sign if it is due or requested. Raises `Transient`."""
        async with self._turn:
            try:
                await self._once(sign)
            except LogMismatch as refused:
                self._refuse(str(refused))
            except BaseException:
                self._edge = None
                raise

    async def _once(self, sign: bool) -> None:
        edge = await self._extended(await self._current())
        since = edge.size - (self._last.size if self._last else 0)
        is_due = time.monotonic() - self._signed_at >= EVERY_S
        if since >= EVERY_LEAVES or (since and (is_due or sign)):
            if self._last is not None:
                await self._fits(edge, self._last, "the last checkpoint")
            await self._give(self.key.signed(edge.size, await self._root(edge, edge.size)))
        for copy in self._copies:
            if copy.name in self._uncopied:
                await self._add(copy, self._uncopied[copy.name])

    def base(self) -> tuple[Checkpoint | None, RightEdge | None]:
        """Return the newest checkpoint and a right edge for proofs, which is at least as far."""
        return self._last, self._edge

    async def tiles(self, edge: RightEdge, numbers: set[TileId]) -> dict[TileId, Nodes]:
        """Return the full ones of some tiles: from the record, or from RAM if they were read recently."""
        full = edge.missing(numbers)
        found = {tile: self._tiles[tile] for tile in full & self._tiles.keys()}
        unknown = sorted(full - found.keys())
        if unknown:
            async with self._database.connection() as connection:
                rows = await connection.fetch(_SQL["tiles"], [p.level for p in unknown], [p.number for p in unknown])
            for row in rows:
                tile = TileId(row["level"], row["number"])
                found[tile] = self._tiles[tile] = nodes(row["hashes"])
        return found

    async def _current(self) -> RightEdge:
        """Return the tree in RAM; read it at first, after a failure, and if the record has gone back. Raises
        `LogMismatch` if it differs from a published one."""
        async with self._database.connection() as connection:
            head = await connection.fetchval(_SQL["head_position"])
        if self._edge is not None and self.fault is None and head >= self._edge.size:
            return self._edge
        self._edge, self._last = None, None
        self._tiles.clear()
        edge = await self._extended(await self._stored())
        self._last = await self._agreed(edge)
        self.fault, self._signed_at = None, time.monotonic()
        return edge

    def _refuse(self, fault: str) -> None:
        if fault != self.fault:
            log.critical("audit.refused", reason=fault)
            CHECKPOINTS.labels("refused").inc()
        self.fault, self._edge = fault, None

    async def _stored(self) -> RightEdge:
        """Return the right edge at the last full tile in the record."""
        levels: list[tuple[bytes, ...]] = [()]
        async with self._database.connection() as connection:
            size = WIDTH * await connection.fetchval(_SQL["count_tiles"], 0)
        level, full = 0, size // WIDTH
        while full:
            above = full // WIDTH
            numbers = range(above * WIDTH, full)
            async with self._database.connection() as connection:
                rows = await connection.fetch(_SQL["tiles"], [level] * len(numbers), list(numbers))
            found = {row["number"]: row["hashes"] for row in rows}
            levels.append(await asyncio.to_thread(_roots, [found.get(number, b"") for number in numbers]))
            level, full = level + 1, above
        return RightEdge(size, tuple(levels))

    async def _extended(self, edge: RightEdge) -> RightEdge:
        """Order waiting leaves, and extend the tree by all leaves with a position, step by step: record first, then
        RAM."""
        while True:
            async with self._database.connection() as connection:
                head = await connection.fetchval(_SQL["sequence_leaves"], _BATCH)
                if head == edge.size:
                    self._edge = edge
                    return edge
                rows = await connection.fetch(_SQL["leaf_hashes"], edge.size, _BATCH)
            if not rows or [row["leaf_position"] for row in rows] != [edge.size + n for n in range(1, len(rows) + 1)]:
                raise LogMismatch(f"a leaf after {edge.size} is missing")
            grown, filled = await asyncio.to_thread(_extended, edge, [row["leaf_hash"] for row in rows])
            if filled:
                async with self._database.connection() as connection:
                    numbers = [tile.number for tile in filled]
                    await connection.execute(
                        _SQL["add_tiles"], [tile.level for tile in filled], numbers, list(filled.values())
                    )
                self._tiles.update((tile_id, nodes(tile)) for tile_id, tile in filled.items())
            edge = grown

    async def _root(self, edge: RightEdge, size: int) -> bytes:
        full = await self.tiles(edge, tiles_of([Range(0, size)]))
        try:
            return edge.root(size, full)
        except KeyError as error:
            raise LogMismatch("a tile of the tree is missing") from error

    async def _agreed(self, edge: RightEdge) -> Checkpoint | None:
        """Return the newest checkpoint of the record and all copies, and add it to copies that lack it. Raises
        `LogMismatch` or `Transient`."""
        async with self._database.connection() as connection:
            notes = [row["note"] for row in await connection.fetch(_SQL["all_notes"])]
        known = {"record": self.key.read("\n".join(notes))}
        for copy in self._copies:
            known[copy.name] = self.key.read(await copy.read())
        for name, read in known.items():
            if read.forged:
                raise LogMismatch(f"{name} has a checkpoint that was not signed by this key")
            for checkpoint in _newest(read):
                await self._fits(edge, checkpoint, name)
        checkpoints = [checkpoint for read in known.values() for checkpoint in read]
        last = max(checkpoints, key=lambda checkpoint: checkpoint.size, default=None)
        self._uncopied = {}
        if last is not None:
            for copy in self._copies:
                newest = known[copy.name].last
                if newest is None or newest.size < last.size:
                    log.warning("audit.copy_behind", copy=copy.name, size=last.size)
                    self._uncopied[copy.name] = last
            await self._note(last)
        return last

    async def _fits(self, edge: RightEdge, checkpoint: Checkpoint, name: str) -> None:
        if checkpoint.size > edge.size:
            raise LogMismatch(f"{name} covers {checkpoint.size} leaves, but the log has {edge.size}")
        if await self._root(edge, checkpoint.size) != checkpoint.root:
            raise LogMismatch(f"{name} covers a different tree of {checkpoint.size} leaves")

    async def _give(self, checkpoint: Checkpoint) -> None:
        """Add a checkpoint to the copies, then to the record: one in the record alone could be removed without a trace.
        Before that the positions are flushed to disk, because they are assigned without waiting for it."""
        async with self._database.connection() as connection:
            await connection.execute(_SQL["flush_head"])
        for copy in self._copies:
            self._uncopied[copy.name] = checkpoint
        for copy in self._copies:
            await self._add(copy, checkpoint)
        await self._note(checkpoint)
        self._last, self._signed_at = checkpoint, time.monotonic()
        CHECKPOINTS.labels("signed").inc()
        log.info("audit.checkpoint", size=checkpoint.size)

    async def _add(self, copy: CheckpointCopy, checkpoint: Checkpoint) -> None:
        try:
            await copy.add(checkpoint)
        except (Transient, OSError) as error:
            log.warning("audit.not_exported", copy=copy.name, reason=str(error))
        else:
            self._uncopied.pop(copy.name, None)

    async def _note(self, checkpoint: Checkpoint) -> None:
        async with self._database.connection() as connection:
            await connection.execute(_SQL["add_checkpoint"], checkpoint.size, checkpoint.root, checkpoint.note)


def _newest(read: ParsedNotes) -> tuple[Checkpoint, ...]:
    return (read.last,) if read.last else ()


def _roots(tiles: Sequence[bytes]) -> tuple[bytes, ...]:
    """Return the roots of tiles. A missing tile has an empty root, so that the tree over it differs from every signed
    one."""
    return tuple(complete_root(hashes(tile)) if tile else b"" for tile in tiles)


def _extended(edge: RightEdge, leaves: Sequence[bytes]) -> tuple[RightEdge, dict[TileId, bytes]]:
    return edge.extended([leaf_hash(leaf) for leaf in leaves])

"""The sequencer: gives leaves their places, keeps the tree over them, and signs checkpoints of it.

What it holds in RAM follows the record step by step, and is read anew from there after any failure; so it may be killed
anywhere. It signs only what extends all that was ever given out: otherwise leaves were lost or changed, and it says so.
"""

import asyncio
import time
from collections.abc import Sequence

import structlog
from cachetools import LRUCache
from prometheus_client import Counter

from counterpoint.memory.audit.export import CheckpointCopy
from counterpoint.memory.audit.note import Checkpoint, NoteKey, ParsedNotes
from counterpoint.memory.audit.tiles import WIDTH, Nodes, RightEdge, TileId, hashes, nodes, places
from counterpoint.memory.audit.tree import Range, complete_root, leaf_hash
from counterpoint.memory.record.database import Database
from counterpoint.proto.errors import Transient

log = structlog.get_logger()

CHECKPOINTS = Counter("counterpoint_audit_checkpoints", "Checkpoints that were signed or refused", ["outcome"])

EVERY_LEAVES = 1000
EVERY_S = 60.0
_BATCH = 2000
_TILES_IN_RAM = 256
_GATHER_S = 0.25
"""Leaves that come within this time are ordered together; nobody waits for it."""
_AGAIN_S = 1.0

_SEQUENCE = "SELECT sequence_leaves($1)"
_FLUSH = "UPDATE audit_head SET position = position WHERE shard = '0'"
_HEAD = "SELECT position FROM audit_head WHERE shard = '0'"
_LEAVES = "SELECT leaf_position, leaf_hash FROM leaf_hashes($1, $2)"
_FULL = "SELECT count(*) FROM audit_tiles WHERE level = $1"
_TILES = """
SELECT t.level, t.number, t.hashes FROM unnest($1::smallint[], $2::bigint[]) AS wanted (level, number)
JOIN audit_tiles t USING (level, number)
"""
_ADD_TILES = """
INSERT INTO audit_tiles (level, number, hashes) SELECT * FROM unnest($1::smallint[], $2::bigint[], $3::bytea[])
ON CONFLICT DO NOTHING
"""
_NOTES = "SELECT note FROM audit_checkpoints ORDER BY size"
_ADD_NOTE = "INSERT INTO audit_checkpoints (size, root, note) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"


class LogMismatch(Exception):
    """The log is not what was signed before; the text says how."""


class Sequencer:
    """Orders leaves and signs, for the one active memory process; a second one only does the same.

    `copies` are the places outside the database that checkpoints go to, first to last.
    """

    def __init__(self, database: Database, key: NoteKey, copies: Sequence[CheckpointCopy]) -> None:
        self.key = key
        self._database = database
        self._copies = copies
        self._edge: RightEdge | None = None
        self._last: Checkpoint | None = None
        self._tiles: LRUCache[TileId, Nodes] = LRUCache(_TILES_IN_RAM)
        self._signed_at = 0.0
        self._owed: dict[str, Checkpoint] = {}
        self._turn = asyncio.Lock()
        self._wake = asyncio.Event()
        self.fault: str | None = None
        """Why nothing is signed any more, when leaves that were vouched for are not there."""

    def soon(self) -> None:
        """There are new leaves."""
        self._wake.set()

    async def run(self) -> None:
        """Order and sign for ever; and once more when it is cancelled, which is the end of a clean stop."""
        try:
            while True:
                try:
                    await self.once()
                    pause_s = self._pause_s()
                except Transient as away:
                    log.warning("audit.waiting", reason=str(away))
                    pause_s = _AGAIN_S
                try:
                    await asyncio.wait_for(self._wake.wait(), pause_s)
                except TimeoutError:
                    continue
                self._wake.clear()
                await asyncio.sleep(_GATHER_S)
        finally:
            await self.close()

    def _pause_s(self) -> float:
        """Until what is not signed yet is to be."""
        unsigned = self._edge is not None and self._edge.size > (self._last.size if self._last else 0)
        return max(_GATHER_S, EVERY_S - (time.monotonic() - self._signed_at)) if unsigned else EVERY_S

    async def close(self) -> None:
        """Sign what there is, as far as that is possible now."""
        try:
            async with asyncio.timeout(5):
                await self.once(sign=True)
        except (Transient, TimeoutError) as away:
            log.warning("audit.unsigned", reason=type(away).__name__)

    async def once(self, *, sign: bool = False) -> None:
        """Order what waits, take it into the tree, and sign when it is time or asked for. Raises `Transient`."""
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
        late = time.monotonic() - self._signed_at >= EVERY_S
        if since >= EVERY_LEAVES or (since and (late or sign)):
            if self._last is not None:
                await self._fits(edge, self._last, "the last checkpoint")
            await self._give(self.key.signed(edge.size, await self._root(edge, edge.size)))
        for copy in self._copies:
            if copy.name in self._owed:
                await self._add(copy, self._owed[copy.name])

    def base(self) -> tuple[Checkpoint | None, RightEdge | None]:
        """The newest checkpoint and the edge to prove by, which has come at least as far."""
        return self._last, self._edge

    async def tiles(self, edge: RightEdge, wanted: set[TileId]) -> dict[TileId, Nodes]:
        """The full ones of some tiles: from the record, or from RAM when they were asked for lately."""
        full = edge.missing(wanted)
        found = {place: self._tiles[place] for place in full & self._tiles.keys()}
        unknown = sorted(full - found.keys())
        if unknown:
            async with self._database.connection() as connection:
                rows = await connection.fetch(_TILES, [p.level for p in unknown], [p.number for p in unknown])
            for row in rows:
                place = TileId(row["level"], row["number"])
                found[place] = self._tiles[place] = nodes(row["hashes"])
        return found

    async def _current(self) -> RightEdge:
        """The tree as far as it is known; read anew at first, after a failure, and when the record has gone back.

        Raises `LogMismatch` when that is not what was given out.
        """
        async with self._database.connection() as connection:
            head = await connection.fetchval(_HEAD)
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
        """The edge at the last full tile in the record."""
        levels: list[tuple[bytes, ...]] = [()]
        async with self._database.connection() as connection:
            size = WIDTH * await connection.fetchval(_FULL, 0)
        level, full = 0, size // WIDTH
        while full:
            above = full // WIDTH
            wanted = range(above * WIDTH, full)
            async with self._database.connection() as connection:
                rows = await connection.fetch(_TILES, [level] * len(wanted), list(wanted))
            found = {row["number"]: row["hashes"] for row in rows}
            levels.append(await asyncio.to_thread(_roots, [found.get(number, b"") for number in wanted]))
            level, full = level + 1, above
        return RightEdge(size, tuple(levels))

    async def _extended(self, edge: RightEdge) -> RightEdge:
        """Order what waits, and the tree with all that has a position. A step at a time: record first, then RAM."""
        while True:
            async with self._database.connection() as connection:
                head = await connection.fetchval(_SEQUENCE, _BATCH)
                if head == edge.size:
                    self._edge = edge
                    return edge
                rows = await connection.fetch(_LEAVES, edge.size, _BATCH)
            if not rows or [row["leaf_position"] for row in rows] != [edge.size + n for n in range(1, len(rows) + 1)]:
                raise LogMismatch(f"a leaf after {edge.size} is missing")
            grown, filled = await asyncio.to_thread(_grown, edge, [row["leaf_hash"] for row in rows])
            if filled:
                async with self._database.connection() as connection:
                    numbers = [place.number for place in filled]
                    await connection.execute(
                        _ADD_TILES, [place.level for place in filled], numbers, list(filled.values())
                    )
                self._tiles.update((place, nodes(tile)) for place, tile in filled.items())
            edge = grown

    async def _root(self, edge: RightEdge, size: int) -> bytes:
        full = await self.tiles(edge, places([Range(0, size)]))
        try:
            return edge.root(size, full)
        except KeyError as error:
            raise LogMismatch("a tile of the tree is missing") from error

    async def _agreed(self, edge: RightEdge) -> Checkpoint | None:
        """The newest checkpoint there is anywhere; copies that lack it get it. Raises `LogMismatch` or `Transient`."""
        async with self._database.connection() as connection:
            notes = [row["note"] for row in await connection.fetch(_NOTES)]
        known = {"record": self.key.read("\n".join(notes))}
        for copy in self._copies:
            known[copy.name] = self.key.read(await copy.read())
        for name, read in known.items():
            if read.forged:
                raise LogMismatch(f"{name} has a checkpoint that was not signed by this key")
            for checkpoint in _newest(read):
                await self._fits(edge, checkpoint, name)
        every = [checkpoint for read in known.values() for checkpoint in read]
        last = max(every, key=lambda checkpoint: checkpoint.size, default=None)
        self._owed = {}
        if last is not None:
            for copy in self._copies:
                held = known[copy.name].last
                if held is None or held.size < last.size:
                    log.warning("audit.copy_behind", copy=copy.name, size=last.size)
                    self._owed[copy.name] = last
            await self._note(last)
        return last

    async def _fits(self, edge: RightEdge, checkpoint: Checkpoint, name: str) -> None:
        if checkpoint.size > edge.size:
            raise LogMismatch(f"{name} covers {checkpoint.size} leaves, but the log has {edge.size}")
        if await self._root(edge, checkpoint.size) != checkpoint.root:
            raise LogMismatch(f"{name} covers a different tree of {checkpoint.size} leaves")

    async def _give(self, checkpoint: Checkpoint) -> None:
        """Outside first: what is in the record alone could be taken back without a trace.

        But before that the places have to be on the disk: they are given without waiting for it.
        """
        async with self._database.connection() as connection:
            await connection.execute(_FLUSH)
        for copy in self._copies:
            self._owed[copy.name] = checkpoint
        for copy in self._copies:
            await self._add(copy, checkpoint)
        await self._note(checkpoint)
        self._last, self._signed_at = checkpoint, time.monotonic()
        CHECKPOINTS.labels("signed").inc()
        log.info("audit.checkpoint", size=checkpoint.size)

    async def _add(self, copy: CheckpointCopy, checkpoint: Checkpoint) -> None:
        try:
            await copy.add(checkpoint)
        except (Transient, OSError) as away:
            log.warning("audit.not_exported", copy=copy.name, reason=str(away))
        else:
            self._owed.pop(copy.name, None)

    async def _note(self, checkpoint: Checkpoint) -> None:
        async with self._database.connection() as connection:
            await connection.execute(_ADD_NOTE, checkpoint.size, checkpoint.root, checkpoint.note)


def _newest(read: ParsedNotes) -> tuple[Checkpoint, ...]:
    return (read.last,) if read.last else ()


def _roots(tiles: Sequence[bytes]) -> tuple[bytes, ...]:
    """A tile that is not there has no root; the tree over it then is none that was signed."""
    return tuple(complete_root(hashes(tile)) if tile else b"" for tile in tiles)


def _grown(edge: RightEdge, leaves: Sequence[bytes]) -> tuple[RightEdge, dict[TileId, bytes]]:
    return edge.extended([leaf_hash(leaf) for leaf in leaves])

"""The check of the whole log, in a process of its own: every leaf, every chain, the tree, and what was written.

`python -m counterpoint.memory.audit.check` reads a `VerificationScope` from standard input and prints the report.
"""

import asyncio
import hashlib
import json
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import asyncpg
from pydantic import BaseModel
from pydantic_core import from_json

from counterpoint.memory.audit.rows import RowVerifier
from counterpoint.memory.audit.standing import ExpectedRows, LeafWrite, placed
from counterpoint.memory.audit.tiles import HASH_BYTES, HEIGHT, WIDTH, TileId, hashes
from counterpoint.memory.audit.tree import Range, Subtree, complete_root, covering, folded, node_hash
from counterpoint.proto.errors import Transient

_CHUNK = 1000
_BATCH = 200
_NAMED = 20
_ZERO = bytes(HASH_BYTES)

_PROJECTS = "SELECT project FROM projects ORDER BY project"
_FENCE = "SELECT set_config('counterpoint.project', $1, true)"
_HEAD = "SELECT position FROM audit_head WHERE shard = '0'"
_LEAVES = """
SELECT position, task_id, previous, leaf, chain IS NOT NULL AS older,
       salt || coalesce(previous, '') || convert_to(body, 'UTF8') AS said, {more}
FROM audit WHERE project = $1 ORDER BY position
"""
_FOREIGN = _LEAVES.format(more="NULL AS own")
_MICROSECONDS = "(extract(epoch FROM {column}) * 1000000)::bigint"
_AT, _DUE_AT = _MICROSECONDS.format(column="at"), _MICROSECONDS.format(column="due_at")
_OWN = _LEAVES.format(more=f"ROW (kind, id::text, body, seq, {_AT})")
_TILES = "SELECT level, number, hashes FROM audit_tiles ORDER BY level, number"
_RECORDS = """
SELECT store, id, version, commit_id, body::text, erased IS NOT NULL, encode(sha256, 'hex'),
       jsonb_build_array(task_id, author, label, integrity, schema_version)::text,
       jsonb_build_array(seq, changed, {at})::text, {superseded}
FROM {table} WHERE project = $1
"""
_WRITTEN = " UNION ALL ".join(
    _RECORDS.format(table=table, at=_AT, superseded=superseded)
    for table, superseded in (("records", "NULL::bigint"), ("history", "superseded"))
)
_MESSAGES = f"""
SELECT id, type, body, jsonb_build_array(task_id, subject, audience, label, integrity, timer)::text, commit_id::text,
       jsonb_build_array(seq, sender, inbound_id, commit_id, {_DUE_AT}, structured, {_AT})::text, task_version
FROM messages WHERE project = $1
"""
_INBOX = f"SELECT consumer, message_id, step, last, fence, outcome, reply::text, {_AT} FROM inbox WHERE project = $1"
_READ_SETS = f"SELECT commit_id::text, cause::text, reads::text, {_AT} FROM read_sets WHERE project = $1"
_DELETED = "SELECT DISTINCT commit_id::text FROM sources WHERE project = $1"
"""The commits whose read sets an earlier release may have deleted."""

_ROOMY = {"jit": "off", "work_mem": "128MB"}
"""A project's leaves are sorted in RAM as far as they fit."""


class KnownCheckpoint(BaseModel):
    """A checkpoint that was kept somewhere, whose signature is ours: the root (hex) of the first `size` leaves."""

    size: int
    root: str
    where: str


class VerificationScope(BaseModel):
    """Scope of a verification: the database, the project and task, and the checkpoints that the tree must agree
    with."""

    url: str
    project: str
    task_id: str | None = None
    known: tuple[KnownCheckpoint, ...] = ()
    faults: tuple[str, ...] = ()
    """Faults found before."""


async def checked(asked: VerificationScope) -> dict[str, Any]:
    """The report, from a process of its own. Raises `Transient` when it ends without one."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "counterpoint.memory.audit.check",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**24,
    )
    try:
        output, _ = await process.communicate(asked.model_dump_json().encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise Transient("the check of the audit log ended early")
    report: dict[str, Any] = json.loads(output)
    return report


async def check(asked: VerificationScope) -> dict[str, Any]:
    """Check in one read-only snapshot. Raises what asyncpg raises when the database goes."""
    connection = await asyncpg.connect(asked.url, timeout=10, server_settings=_ROOMY)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            return await _check(connection, asked)
    finally:
        await connection.close()


async def _check(connection: Any, asked: VerificationScope) -> dict[str, Any]:
    head = await connection.fetchval(_HEAD)
    faults = list(asked.faults) if head is not None else [*asked.faults, "nothing says where the log ends"]
    head = head or 0
    leaves = _Leaves(asked.project, asked.task_id, head)
    for row in await connection.fetch(_PROJECTS):
        await connection.execute(_FENCE, row["project"])
        leaves.begin()
        statement = _OWN if row["project"] == asked.project else _FOREIGN
        async for rows in _batches(connection, statement, row["project"], _CHUNK):
            leaves.take(rows)
    leaves.erasures()
    kept = {TileId(row["level"], row["number"]): row["hashes"] async for row in connection.cursor(_TILES)}
    root = leaves.tree(asked.known, kept)
    records = RowVerifier(leaves)
    await connection.execute(_FENCE, asked.project)
    async for rows in _batches(connection, _WRITTEN, asked.project, _BATCH):
        records.written(rows)
    records.gone()
    async for rows in _batches(connection, _MESSAGES, asked.project, _BATCH):
        records.sent(rows)
    async for rows in _batches(connection, _INBOX, asked.project, _BATCH):
        records.applied(rows)
    async for rows in _batches(connection, _READ_SETS, asked.project, _BATCH):
        records.read(rows)
    records.unread({row["commit_id"] for row in await connection.fetch(_DELETED, asked.project)})
    broken = [*faults, *leaves.broken, *records.broken]
    covered = max((known.size for known in asked.known), default=0)
    return {
        "ok": not broken,
        "project": asked.project,
        "task_id": asked.task_id,
        "leaves": sum(leaves.counts.values()),
        "commits": leaves.counts["commit"],
        "refusals": leaves.counts["refusal"],
        "erased": leaves.erased,
        "records": records.found,
        "head": {"position": head, "root": root.hex()},
        "checkpoints": len({(known.size, known.root) for known in asked.known}),
        "window": {"from": min(covered, head), "to": head, "waiting": leaves.waiting},
        "broken": broken[:_NAMED],
        "broken_count": len(broken),
    }


async def _batches(connection: Any, statement: str, project: str, size: int) -> AsyncIterator[list[Any]]:
    """Rows, so many at a time; the database works on the next ones while those at hand are looked at."""
    cursor = await connection.cursor(statement, project)
    rows = await cursor.fetch(size)
    while rows:
        coming = asyncio.create_task(cursor.fetch(size))
        await asyncio.sleep(0)
        yield rows
        rows = await coming


class _Leaves:
    """Verify the leaves of each project, and then the tree over all of them."""

    def __init__(self, project: str, task_id: str | None, head: int) -> None:
        self._project = project
        self._task_id = task_id
        self._head = head
        self._of_task: dict[str, bytes] = {}
        self._hashes = [_ZERO] * head
        self.written: dict[tuple[str, str, int], LeafWrite] = {}
        self.messages: dict[str, list[Any]] = {}
        """Type, hash of the body and stamps of messages, by id; leaves of older releases have no stamps."""
        self.unknown: dict[int, str] = {}
        """Commits whose leaves were erased, by position: what they wrote is known from who erased them."""
        self.forgotten: set[int] = set()
        """Positions of leaves that an erasure says it has erased."""
        self.gone: dict[tuple[str, str], int] = {}
        """Up to which version an erasure says it has erased a record, whatever vouched for that before."""
        self.standing = ExpectedRows()
        """Verify the rows of the project against its leaves."""
        self.counts = {"commit": 0, "refusal": 0}
        self.erased = self.waiting = 0
        self.broken: list[str] = []

    def begin(self) -> None:
        """The next leaves are of another project."""
        self._of_task = {}

    def take(self, rows: Iterable[Any]) -> None:
        """Some leaves, in their order, those without a place at the end."""
        sha256, of_task, places = hashlib.sha256, self._of_task, self._hashes
        for position, task, previous, leaf, older, said, own in rows:
            if said is None:
                self.erased += 1
            elif position is not None and sha256(said).digest() != leaf:
                self.broken.append(f"leaf {position} was changed")
            if own is not None:
                self._read(position, task, *own)
                if older and (own[2] or "").startswith('{"placed":'):
                    self.broken.append(f"leaf {position} is of no release before")
            if position is None:
                self.waiting += 1
                continue
            if task is not None:
                if previous != of_task.get(task) and not (older and previous is None):
                    self.broken.append(f"leaf {position} does not follow the one before it of its task")
                of_task[task] = leaf
            elif previous is not None:
                self.broken.append(f"leaf {position} follows another, of no task")
            if 0 < position <= self._head:
                places[position - 1] = leaf or b""
            else:
                self.broken.append(f"leaf {position} is after the end of the log, {self._head}")

    def _read(
        self, position: int | None, task: str | None, kind: str, commit: str, body: str | None, seq: int | None, at: int
    ) -> None:
        if self._task_id is None or task == self._task_id:
            self.counts[kind] = self.counts.get(kind, 0) + 1
        if body is None:
            self.unknown[position or 0] = commit
            return
        try:
            said = from_json(body)
        except ValueError:
            return
        if (said.get("task"), "refused" not in said) != (task, kind == "commit"):
            self.broken.append(f"leaf {position} is filed as what it is not")
        if (wrong := self.standing.take(said, commit, self._project, seq, at)) is not None:
            self.broken.append(f"leaf {position} {wrong}")
        erased = said.get("erased") or {}
        self.forgotten.update(erased.get("leaves", ()))
        if erased:
            self.gone.update(((store, record_id), version) for store, record_id, version, *_ in said.get("writes", ()))
        for writes, by in ((placed(said), commit), (erased.get("kept", ()), None)):
            for store, record_id, version, sha256, *more in writes:
                stamps, place = (*more, None, None)[:2]
                self.written[store, record_id, version] = LeafWrite(sha256, stamps, by, place)
        for message_id, *more in said.get("messages", ()):
            self.messages[message_id] = more

    def erasures(self) -> None:
        """All leaves were seen: those without content were erased by somebody who said so."""
        for position in sorted(self.unknown.keys() - self.forgotten):
            self.broken.append(f"leaf {position} has no content, and no erasure says that it forgot it")

    def tree(self, known: Sequence[KnownCheckpoint], kept: Mapping[TileId, bytes]) -> bytes:
        """Build it over all leaves, compare it with checkpoints and with the tiles that are kept; its root."""
        for index, leaf in enumerate(self._hashes):
            if leaf is _ZERO:
                self.broken.append(f"leaf {index + 1} is missing")
        sha256 = hashlib.sha256
        nodes = [sha256(b"\x00" + leaf).digest() for leaf in self._hashes]
        built = _Built(nodes)
        signed = min(max((each.size for each in known), default=0), len(nodes))
        self.broken += _tiles_broken(built, kept, signed)
        for size, root, where in sorted({(each.size, each.root, each.where) for each in known}):
            if size > len(nodes):
                self.broken.append(f"the log ends at leaf {len(nodes)}, {where} vouches for {size}")
            elif built.root(size).hex() != root:
                self.broken.append(f"the first {size} leaves are not those that {where} vouches for")
        return built.root(len(nodes))


def _tiles_broken(built: "_Built", kept: Mapping[TileId, bytes], signed: int) -> Iterator[str]:
    """The tiles that are not those of the tree, and those before its last checkpoint that are not there."""
    for place, said in kept.items():
        tile = built.tile(place)
        if tile is None:
            yield f"a tile is kept at level {place.level}, number {place.number}, where the tree has none"
        elif b"".join(tile) != said:
            at = next(n for n, node in enumerate([*hashes(said), b""]) if n == WIDTH or node != tile[n])
            yield f"the tree as it is kept differs at leaf {((place.number * WIDTH + at) << HEIGHT * place.level) + 1}"
    for level in range(signed.bit_length() // HEIGHT):
        for number in range(signed >> HEIGHT * (level + 1)):
            if TileId(level, number) not in kept:
                yield f"the tile at level {level}, number {number} is missing"


class _Built:
    """The whole tree; roots of complete parts are made once."""

    def __init__(self, nodes: Sequence[bytes]) -> None:
        self._nodes = nodes
        self.tiles = [nodes[at : at + WIDTH] for at in range(0, len(nodes) - WIDTH + 1, WIDTH)]
        self._roots = {Subtree(HEIGHT, number): complete_root(tile) for number, tile in enumerate(self.tiles)}

    def tile(self, place: TileId) -> list[bytes] | None:
        """The hashes of a tile, where the tree is large enough to have it."""
        if place.level < 0 or not 0 <= place.number < len(self._nodes) >> HEIGHT * (place.level + 1):
            return None
        if place.level == 0:
            return list(self.tiles[place.number])
        return [self._of(Subtree(HEIGHT * place.level, place.number * WIDTH + at)) for at in range(WIDTH)]

    def root(self, size: int) -> bytes:
        """The root over the first `size` leaves."""
        return folded(self._of(subtree) for subtree in covering(Range(0, size)))

    def _of(self, subtree: Subtree) -> bytes:
        height, number = subtree
        if height < HEIGHT:
            return complete_root(self._nodes[number << height : (number + 1) << height])
        if subtree not in self._roots:
            below = Subtree(height - 1, 2 * number), Subtree(height - 1, 2 * number + 1)
            self._roots[subtree] = node_hash(*map(self._of, below))
        return self._roots[subtree]


def main() -> None:
    """The process."""
    report = asyncio.run(check(VerificationScope.model_validate_json(sys.stdin.buffer.read())))
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    main()

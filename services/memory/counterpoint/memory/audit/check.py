"""Verification of the whole log, in a process of its own: every leaf, every chain, the tree, and the rows written.

`python -m counterpoint.memory.audit.check` reads a `VerificationScope` from each line of standard input and prints its
report as a line.
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

from counterpoint.memory.audit.leaf_body import expanded
from counterpoint.memory.audit.packed_leaf import leaf_text
from counterpoint.memory.audit.rows import RowVerifier
from counterpoint.memory.audit.standing import ExpectedRows, LeafWrite, placed
from counterpoint.memory.audit.tiles import HASH_BYTES, HEIGHT, WIDTH, TileId, hashes
from counterpoint.memory.audit.tree import Range, Subtree, complete_root, covering, folded, node_hash
from counterpoint.memory.record.projects import all_projects, set_project
from counterpoint.memory.record.session import apply_settings
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.proto.errors import Transient

_CHUNK = 1000
_BATCH = 200
_REPORTED = 20
_ZERO = bytes(HASH_BYTES)

_SETTINGS = {"jit": "off", "work_mem": "128MB"}
"""Settings of the connection: a project's leaves are sorted in RAM as far as they fit."""

_SQL = load_statements(__package__)


class KnownCheckpoint(BaseModel):
    """A copy of a checkpoint with a valid signature: the root (hex) of the first `size` leaves."""

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


async def checked(scope: VerificationScope) -> dict[str, Any]:
    """Return the report of the process. Raises `Transient` if it ends without one."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "counterpoint.memory.audit.check",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**24,
    )
    try:
        output, _ = await process.communicate(scope.model_dump_json().encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise Transient("the check of the audit log ended early")
    report: dict[str, Any] = json.loads(output)
    return report


async def check(scope: VerificationScope) -> dict[str, Any]:
    """Verify in one read-only snapshot. Raises the errors of asyncpg if the database goes away."""
    connection = await asyncpg.connect(scope.url, timeout=10)
    try:
        await apply_settings(connection, _SETTINGS)
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            return await _check(connection, scope)
    finally:
        await connection.close()


async def _check(connection: Any, scope: VerificationScope) -> dict[str, Any]:
    head = await connection.fetchval(_SQL["head_position"])
    faults = list(scope.faults) if head is not None else [*scope.faults, "the end of the log is not recorded"]
    head = head or 0
    leaves = _Leaves(scope.project, scope.task_id, head)
    for project in await all_projects(connection):
        await set_project(connection, project, in_transaction=True)
        leaves.begin()
        statement = _SQL["leaves_of_project" if project == scope.project else "leaves_of_other_project"]
        async for rows in _batches(connection, statement, project, _CHUNK):
            leaves.take(rows)
    leaves.erasures()
    kept = {TileId(row["level"], row["number"]): row["hashes"] async for row in connection.cursor(_SQL["all_tiles"])}
    root = leaves.tree(scope.known, kept)
    records = RowVerifier(leaves)
    await set_project(connection, scope.project, in_transaction=True)
    async for rows in _batches(connection, _SQL["written_records"], scope.project, _BATCH):
        records.written(rows)
    records.gone()
    async for rows in _batches(connection, _SQL["written_messages"], scope.project, _BATCH):
        records.sent(rows)
    async for rows in _batches(connection, _SQL["written_inbox"], scope.project, _BATCH):
        records.applied(rows)
    async for rows in _batches(connection, _SQL["written_read_sets"], scope.project, _BATCH):
        records.read(rows)
    records.unread({row["commit_id"] for row in await connection.fetch(_SQL["commits_with_sources"], scope.project)})
    broken = [*faults, *leaves.broken, *records.broken]
    covered = max((known.size for known in scope.known), default=0)
    return {
        "ok": not broken,
        "project": scope.project,
        "task_id": scope.task_id,
        "leaves": sum(leaves.counts.values()),
        "commits": leaves.counts["commit"],
        "refusals": leaves.counts["refusal"],
        "erased": leaves.erased,
        "records": records.found,
        "head": {"position": head, "root": root.hex()},
        "checkpoints": len({(known.size, known.root) for known in scope.known}),
        "window": {"from": min(covered, head), "to": head, "waiting": leaves.waiting},
        "broken": broken[:_REPORTED],
        "broken_count": len(broken),
    }


async def _batches(connection: Any, statement: str, project: str, size: int) -> AsyncIterator[list[Any]]:
    """Yield rows in batches; the database prepares the next one meanwhile."""
    cursor = await connection.cursor(statement, project)
    rows = await cursor.fetch(size)
    while rows:
        coming = asyncio.create_task(cursor.fetch(size))
        await asyncio.sleep(0)
        yield rows
        rows = await coming


class _Leaves:
    """Verifies the leaves of each project, and then the tree over all of them."""

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
        """Commits whose leaves were erased, by position; their writes are listed in the leaf of the erasure."""
        self.erased_positions: set[int] = set()
        """Positions of leaves that an erasure lists as erased."""
        self.gone: dict[tuple[str, str], int] = {}
        """By record, the last version that an erasure lists as erased, whatever leaf contained it before."""
        self.standing = ExpectedRows()
        """Rows of the project as its leaves list them."""
        self.counts = {"commit": 0, "refusal": 0}
        self.erased = self.waiting = 0
        self.broken: list[str] = []

    def begin(self) -> None:
        """Begin another project."""
        self._of_task = {}

    def take(self, rows: Iterable[Any]) -> None:
        """Verify some leaves in their order; those without a position come last."""
        sha256, of_task, places = hashlib.sha256, self._of_task, self._hashes
        for position, task, previous, leaf, older, salt, stored, packed, own in rows:
            body = leaf_text(stored, packed)
            if body is None:
                self.erased += 1
            elif salt is None or (position and sha256(salt + (previous or b"") + body.encode()).digest() != leaf):
                self.broken.append(f"leaf {position} was changed")
            if own is not None:
                self._read(position, task, body, *own)
                if older and (body or "").startswith('{"placed":'):
                    self.broken.append(f"leaf {position} is marked as written by an older release, but was not")
            if position is None:
                self.waiting += 1
                continue
            if task is not None:
                if previous != of_task.get(task) and not (older and previous is None):
                    self.broken.append(f"leaf {position} does not follow the previous leaf of its task")
                of_task[task] = leaf
            elif previous is not None:
                self.broken.append(f"leaf {position} follows another leaf, but belongs to no task")
            if 0 < position <= self._head:
                places[position - 1] = leaf or b""
            else:
                self.broken.append(f"leaf {position} is after the end of the log, {self._head}")

    def _read(
        self, position: int | None, task: str | None, body: str | None, kind: str, commit: str, seq: int | None, at: int
    ) -> None:
        if self._task_id is None or task == self._task_id:
            self.counts[kind] = self.counts.get(kind, 0) + 1
        if body is None:
            self.unknown[position or 0] = commit
            return
        try:
            hashed = expanded(from_json(body))
        except (ValueError, LookupError, TypeError):
            return
        if (hashed.get("task"), "refused" not in hashed) != (task, kind == "commit"):
            self.broken.append(f"leaf {position} is stored with a wrong task or kind")
        if (wrong := self.standing.take(hashed, commit, self._project, seq, at)) is not None:
            self.broken.append(f"leaf {position} {wrong}")
        erased = hashed.get("erased") or {}
        self.erased_positions.update(erased.get("leaves", ()))
        if erased:
            self.gone.update(
                ((store, record_id), version) for store, record_id, version, *_ in hashed.get("writes", ())
            )
        for writes, by in ((placed(hashed), commit), (erased.get("kept", ()), None)):
            for store, record_id, version, sha256, *more in writes:
                stamps, place = (*more, None, None)[:2]
                self.written[store, record_id, version] = LeafWrite(sha256, stamps, by, place)
        for message_id, *more in hashed.get("messages", ()):
            self.messages[message_id] = more

    def erasures(self) -> None:
        """Verify that every leaf without content is listed as erased, after all leaves."""
        for position in sorted(self.unknown.keys() - self.erased_positions):
            self.broken.append(f"leaf {position} has no content, and no erasure accounts for it")

    def tree(self, known: Sequence[KnownCheckpoint], kept: Mapping[TileId, bytes]) -> bytes:
        """Build the tree over all leaves, compare it with checkpoints and stored tiles; return its root."""
        for index, leaf in enumerate(self._hashes):
            if leaf is _ZERO:
                self.broken.append(f"leaf {index + 1} is missing")
        sha256 = hashlib.sha256
        nodes = [sha256(b"\x00" + leaf).digest() for leaf in self._hashes]
        built = _AuditTree(nodes)
        signed = min(max((each.size for each in known), default=0), len(nodes))
        self.broken += _tiles_broken(built, kept, signed)
        for size, root, where in sorted({(each.size, each.root, each.where) for each in known}):
            if size > len(nodes):
                self.broken.append(f"the log ends at leaf {len(nodes)}, but a checkpoint of {where} has {size}")
            elif built.root(size).hex() != root:
                self.broken.append(f"the first {size} leaves differ from a checkpoint of {where}")
        return built.root(len(nodes))


def _tiles_broken(built: "_AuditTree", kept: Mapping[TileId, bytes], signed: int) -> Iterator[str]:
    """Report stored tiles that differ from the tree, and missing ones before its last checkpoint."""
    for place, hashed in kept.items():
        tile = built.tile(place)
        if tile is None:
            yield f"an extra tile is stored at level {place.level}, number {place.number}"
        elif b"".join(tile) != hashed:
            at = next(n for n, node in enumerate([*hashes(hashed), b""]) if n == WIDTH or node != tile[n])
            yield f"the stored tree differs at leaf {((place.number * WIDTH + at) << HEIGHT * place.level) + 1}"
    for level in range(signed.bit_length() // HEIGHT):
        for number in range(signed >> HEIGHT * (level + 1)):
            if TileId(level, number) not in kept:
                yield f"the tile at level {level}, number {number} is missing"


class _AuditTree:
    """The complete tree; roots of complete parts are computed once."""

    def __init__(self, nodes: Sequence[bytes]) -> None:
        self._nodes = nodes
        self.tiles = [nodes[at : at + WIDTH] for at in range(0, len(nodes) - WIDTH + 1, WIDTH)]
        self._roots = {Subtree(HEIGHT, number): complete_root(tile) for number, tile in enumerate(self.tiles)}

    def tile(self, place: TileId) -> list[bytes] | None:
        """Return the hashes of a tile, if the tree is large enough to have it."""
        if place.level < 0 or not 0 <= place.number < len(self._nodes) >> HEIGHT * (place.level + 1):
            return None
        if place.level == 0:
            return list(self.tiles[place.number])
        return [self._of(Subtree(HEIGHT * place.level, place.number * WIDTH + at)) for at in range(WIDTH)]

    def root(self, size: int) -> bytes:
        """Return the root over the first `size` leaves."""
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
    """Run the process."""
    for line in sys.stdin.buffer:
        print(json.dumps(asyncio.run(check(VerificationScope.model_validate_json(line)))))


if __name__ == "__main__":
    main()

"""The auditor: answers what is asked of the log. Of other projects than the asker's it shows hashes, and no content."""

import base64
from collections.abc import Sequence
from typing import Any, assert_never

from counterpoint.memory.audit.check import KnownCheckpoint, VerificationScope, checked
from counterpoint.memory.audit.export import CheckpointCopy
from counterpoint.memory.audit.note import Checkpoint
from counterpoint.memory.audit.refusals import EXPLAINED, explained
from counterpoint.memory.audit.sequencer import Sequencer
from counterpoint.memory.audit.tiles import RightEdge, places
from counterpoint.memory.audit.tree import inclusion, proof
from counterpoint.memory.record.database import Database
from counterpoint.proto.errors import ErrorCode, Permanent, Problem, Transient
from counterpoint.proto.memory import AuditLeaves, AuditQuery, Checkpoints, Explain, Prove, Verify

PAGE_BYTES = 600_000
"""Size limit of a page of leaves, in bytes; the bus carries a little more."""

_LEAF = "position, leaf, salt, previous, body"
_OF_TASK = f"""
SELECT {_LEAF} FROM audit WHERE project = $1 AND task_id = $2 AND (position > $3 OR position IS NULL)
ORDER BY position LIMIT $4
"""
_BY_ID = f"SELECT {_LEAF} FROM audit WHERE project = $1 AND id = ANY ($2::uuid[]) ORDER BY position"
_PAGE = f"""
SELECT h.leaf_position, h.leaf_hash, a.* FROM leaf_hashes($2, $3) AS h
LEFT JOIN (SELECT {_LEAF} FROM audit WHERE project = $1 AND position > $2) AS a ON a.position = h.leaf_position
ORDER BY h.leaf_position
"""
_NOTES = "SELECT size, root, note, at FROM audit_checkpoints WHERE size < $1 ORDER BY size DESC LIMIT $2"
_ALL_NOTES = "SELECT size, root, note FROM audit_checkpoints"


class Auditor:
    """Verifies, proves, lists and explains, in one project at a time."""

    def __init__(self, database: Database, sequencer: Sequencer, copies: Sequence[CheckpointCopy]) -> None:
        self._database = database
        self._sequencer = sequencer
        self._copies = copies

    async def answer(self, project: str, query: AuditQuery) -> dict[str, Any]:
        """The report to a query. Raises `Transient`, or `Permanent` `not_found`."""
        match query:
            case Verify():
                return await self._verify(project, query)
            case Prove():
                return await self._prove(project, query)
            case Checkpoints():
                return await self._checkpoints(query)
            case AuditLeaves():
                return await self._leaves(project, query)
            case Explain():
                return await self._explain(project, query)
            case _:
                assert_never(query)

    async def _verify(self, project: str, query: Verify) -> dict[str, Any]:
        await self._sequencer.once()
        faults = [self._sequencer.fault] if self._sequencer.fault else []
        known: list[KnownCheckpoint] = []
        unread: list[str] = []
        recorded = await self._recorded()
        faults += [
            f"the record has an altered checkpoint of {row['size']} leaves"
            for row in recorded
            if not self._filed(row["note"], row["size"], row["root"])
        ]
        texts = {"the caller": query.checkpoints, "the record": "\n".join(row["note"] for row in recorded)}
        for copy in self._copies:
            try:
                texts[f"the {copy.name}"] = await copy.read()
            except (Transient, OSError):
                unread.append(copy.name)
        last: Checkpoint | None = None
        for where, text in texts.items():
            read = self._sequencer.key.read(text)
            if read.forged:
                faults.append(f"{where} has {read.forged} checkpoints with an invalid signature")
            known += [KnownCheckpoint(size=each.size, root=each.root.hex(), where=where) for each in read]
            if read.last is not None and (last is None or read.last.size > last.size):
                last = read.last
        asked = VerificationScope(
            url=self._database.url, project=project, task_id=query.task_id, known=tuple(known), faults=tuple(faults)
        )
        report = await checked(asked)
        shown = {"size": last.size, "root": last.root.hex(), "note": last.note} if last else None
        return report | {"key": self._sequencer.key.public, "checkpoint": shown, "unread": unread}

    def _filed(self, note: str, size: int, root: bytes) -> bool:
        """Whether the record files a note of ours as what it is; one of another key, or a forged one, is told apart."""
        read = self._sequencer.key.read(note)
        return bool(read.foreign or read.forged) or read.checkpoints == (Checkpoint(size, root, note),)

    async def _recorded(self) -> list[Any]:
        async with self._database.connection() as connection:
            return list(await connection.fetch(_ALL_NOTES))

    async def _prove(self, project: str, query: Prove) -> dict[str, Any]:
        rows = await self._of(project, query)
        last, edge = self._sequencer.base()
        if last is None or edge is None or any((row["position"] or last.size + 1) > last.size for row in rows):
            await self._sequencer.once(sign=True)
            last, edge = self._sequencer.base()
            rows = await self._of(project, query)
        if last is None or edge is None:
            raise Transient(self._sequencer.fault or "no checkpoint was signed yet")
        covered = [row for row in rows if row["position"] is not None and row["position"] <= last.size]
        page = _fitting(covered)
        more = len(page) < len(covered) or len(rows) == query.limit
        return {
            "key": self._sequencer.key.public,
            "checkpoint": last.note,
            "size": last.size,
            "leaves": await self._paths(page, last, edge),
            "next": page[-1]["position"] if page and more else None,
        }

    async def _of(self, project: str, query: Prove) -> list[Any]:
        async with self._database.reading(project) as connection:
            if query.id is not None:
                return list(await connection.fetch(_BY_ID, project, [query.id]))
            return list(await connection.fetch(_OF_TASK, project, query.task_id, query.after, query.limit))

    async def _paths(self, rows: Sequence[Any], last: Checkpoint, edge: RightEdge) -> list[dict[str, Any]]:
        parts = [inclusion(row["position"] - 1, last.size) for row in rows]
        full = await self._sequencer.tiles(edge, places([part for each in parts for part in each]))
        try:
            paths = [proof(each, lambda subtree: edge.root_of(subtree, full)) for each in parts]
        except KeyError as error:
            raise Transient("the tree is incomplete") from error
        return [_shown(row) | {"path": [node.hex() for node in path]} for row, path in zip(rows, paths, strict=True)]

    async def _checkpoints(self, query: Checkpoints) -> dict[str, Any]:
        async with self._database.connection() as connection:
            rows = await connection.fetch(_NOTES, query.before or 2**63 - 1, query.limit)
        items = [
            {
                "size": row["size"],
                "root": base64.b64encode(row["root"]).decode(),
                "note": row["note"],
                "at": row["at"].isoformat(),
            }
            for row in rows
        ]
        following = rows[-1]["size"] if len(rows) == query.limit else None
        return {"key": self._sequencer.key.public, "items": items, "next": following}

    async def _leaves(self, project: str, query: AuditLeaves) -> dict[str, Any]:
        if query.after == 0:
            await self._sequencer.once(sign=True)
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_PAGE, project, query.after, query.limit)
        page = _fitting(rows)
        items = [
            _shown(row)
            if row["position"] is not None
            else {"index": row["leaf_position"] - 1, "leaf": row["leaf_hash"].hex()}
            for row in page
        ]
        more = len(page) < len(rows) or len(rows) == query.limit
        return {"items": items, "next": page[-1]["leaf_position"] if page and more else None}

    async def _explain(self, project: str, query: Explain) -> dict[str, Any]:
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(EXPLAINED, project, query.id, query.before or 2**63 - 1, query.limit + 1)
        if query.id is not None and not rows:
            raise Permanent(ErrorCode.NOT_FOUND, (Problem(field="id", problem="is not a refusal of this project"),))
        items = [explained(row, project) for row in rows[: query.limit]]
        following = rows[query.limit - 1]["place"] if len(rows) > query.limit else None
        return {"items": items, "next": following}


def _shown(row: Any) -> dict[str, Any]:
    """A leaf of the asker's own project: its hash and all that this is made of, as long as it was not erased.

    Nothing else: whoever checks it by the hash knows all of it to be true.
    """
    return {
        "index": row["position"] - 1,
        "leaf": row["leaf"].hex(),
        "salt": row["salt"].hex() if row["salt"] is not None else None,
        "previous": row["previous"].hex() if row["previous"] is not None else None,
        "body": row["body"],
    }


def _fitting(rows: Sequence[Any]) -> list[Any]:
    """The first rows whose content fits into one answer, at least one."""
    page: list[Any] = []
    size = 0
    for row in rows:
        size += 1500 + 2 * len((row["body"] or "").encode())
        if page and size > PAGE_BYTES:
            break
        page.append(row)
    return page

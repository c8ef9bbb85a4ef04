"""The auditor: answers queries of the audit log. Leaves of other projects are shown as hashes, without content."""

import base64
from collections.abc import Sequence
from typing import Any, assert_never

from counterpoint.memory.audit.check import KnownCheckpoint, VerificationScope, checked
from counterpoint.memory.audit.export import CheckpointCopy
from counterpoint.memory.audit.note import Checkpoint
from counterpoint.memory.audit.packed_leaf import leaf_text
from counterpoint.memory.audit.refusals import explained
from counterpoint.memory.audit.sequencer import Sequencer
from counterpoint.memory.audit.tiles import RightEdge, tiles_of
from counterpoint.memory.audit.tree import inclusion, proof
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.proto.errors import ErrorCode, Permanent, Problem, Transient
from counterpoint.proto.memory import AuditLeaves, AuditQuery, Checkpoints, Explain, Prove, Verify

PAGE_BYTES = 600_000
"""Size limit of a page of leaves, in bytes; the bus carries a little more."""

_SQL = load_statements(__package__)


class Auditor:
    """Verifies, proves, lists and explains, in one project at a time."""

    def __init__(self, database: Database, sequencer: Sequencer, copies: Sequence[CheckpointCopy]) -> None:
        self._database = database
        self._sequencer = sequencer
        self._copies = copies

    async def answer(self, project: str, query: AuditQuery) -> dict[str, Any]:
        """Return the report on a query. Raises `Transient`, or `Permanent` `not_found`."""
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
            if not self._is_recorded_correctly(row["note"], row["size"], row["root"])
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
        scope = VerificationScope(
            url=self._database.url, project=project, task_id=query.task_id, known=tuple(known), faults=tuple(faults)
        )
        report = await checked(scope)
        newest = {"size": last.size, "root": last.root.hex(), "note": last.note} if last else None
        return report | {"key": self._sequencer.key.public, "checkpoint": newest, "unread": unread}

    def _is_recorded_correctly(self, note: str, size: int, root: bytes) -> bool:
        """Whether a note of ours is in the record under its own size and root; one of another key, or a forged one, is
        reported elsewhere."""
        read = self._sequencer.key.read(note)
        return bool(read.foreign or read.forged) or read.checkpoints == (Checkpoint(size, root, note),)

    async def _recorded(self) -> list[Any]:
        async with self._database.connection() as connection:
            return list(await connection.fetch(_SQL["all_checkpoints"]))

    async def _prove(self, project: str, query: Prove) -> dict[str, Any]:
        rows = await self._rows_of(project, query)
        last, edge = self._sequencer.base()
        if last is None or edge is None or any((row["position"] or last.size + 1) > last.size for row in rows):
            await self._sequencer.once(sign=True)
            last, edge = self._sequencer.base()
            rows = await self._rows_of(project, query)
        if last is None or edge is None:
            raise Transient(self._sequencer.fault or "no checkpoint was signed yet")
        covered = [row for row in rows if row["position"] is not None and row["position"] <= last.size]
        page = _first_page(covered)
        more = len(page) < len(covered) or len(rows) == query.limit
        return {
            "key": self._sequencer.key.public,
            "checkpoint": last.note,
            "size": last.size,
            "leaves": await self._paths(page, last, edge),
            "next": page[-1]["position"] if page and more else None,
        }

    async def _rows_of(self, project: str, query: Prove) -> list[Any]:
        async with self._database.reading(project) as connection:
            if query.id is not None:
                return list(await connection.fetch(_SQL["leaves_by_id"], project, [query.id]))
            return list(
                await connection.fetch(_SQL["leaves_of_task"], project, query.task_id, query.after, query.limit)
            )

    async def _paths(self, rows: Sequence[Any], last: Checkpoint, edge: RightEdge) -> list[dict[str, Any]]:
        parts = [inclusion(row["position"] - 1, last.size) for row in rows]
        full = await self._sequencer.tiles(edge, tiles_of([part for each in parts for part in each]))
        try:
            paths = [proof(each, lambda subtree: edge.root_of(subtree, full)) for each in parts]
        except KeyError as error:
            raise Transient("the tree is incomplete") from error
        return [
            _leaf_view(row) | {"path": [node.hex() for node in path]} for row, path in zip(rows, paths, strict=True)
        ]

    async def _checkpoints(self, query: Checkpoints) -> dict[str, Any]:
        async with self._database.connection() as connection:
            rows = await connection.fetch(_SQL["checkpoints_before"], query.before or 2**63 - 1, query.limit)
        items = [
            {
                "size": row["size"],
                "root": base64.b64encode(row["root"]).decode(),
                "note": row["note"],
                "at": row["at"].isoformat(),
            }
            for row in rows
        ]
        next_before = rows[-1]["size"] if len(rows) == query.limit else None
        return {"key": self._sequencer.key.public, "items": items, "next": next_before}

    async def _leaves(self, project: str, query: AuditLeaves) -> dict[str, Any]:
        if query.after == 0:
            await self._sequencer.once(sign=True)
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_SQL["leaves_after"], project, query.after, query.limit)
        page = _first_page(rows)
        items = [
            _leaf_view(row)
            if row["position"] is not None
            else {"index": row["leaf_position"] - 1, "leaf": row["leaf_hash"].hex()}
            for row in page
        ]
        more = len(page) < len(rows) or len(rows) == query.limit
        return {"items": items, "next": page[-1]["leaf_position"] if page and more else None}

    async def _explain(self, project: str, query: Explain) -> dict[str, Any]:
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(
                _SQL["refusals_before"], project, query.id, query.before or 2**63 - 1, query.limit + 1
            )
        if query.id is not None and not rows:
            raise Permanent(ErrorCode.NOT_FOUND, (Problem(field="id", problem="is not a refusal of this project"),))
        items = [explained(row, project) for row in rows[: query.limit]]
        next_before = rows[query.limit - 1]["place"] if len(rows) > query.limit else None
        return {"items": items, "next": next_before}


def _leaf_view(row: Any) -> dict[str, Any]:
    """Return a leaf of the caller's own project: its hash and everything that is hashed, unless it was erased.

    It contains nothing else, so that the hash covers all of it.
    """
    return {
        "index": row["position"] - 1,
        "leaf": row["leaf"].hex(),
        "salt": row["salt"].hex() if row["salt"] is not None else None,
        "previous": row["previous"].hex() if row["previous"] is not None else None,
        "body": leaf_text(row["body"], row["packed"]),
    }


def _first_page(rows: Sequence[Any]) -> list[Any]:
    """Return the first rows whose content fits into one reply, at least one."""
    page: list[Any] = []
    size = 0
    for row in rows:
        size += 1500 + 2 * len((leaf_text(row["body"], row["packed"]) or "").encode())
        if page and size > PAGE_BYTES:
            break
        page.append(row)
    return page

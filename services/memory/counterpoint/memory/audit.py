"""The audit log: a leaf per commit and per refusal, chained; and the check that nothing was changed afterwards."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

from counterpoint.memory.rows import canonical

GENESIS = hashlib.sha256(b"counterpoint audit").digest()
_WINDOW = 5000
_BATCH = 200
_NAMED = 20

_PROJECTS = "SELECT project FROM projects ORDER BY project"
_FENCE = "SELECT set_config('counterpoint.project', $1, true)"
_LEAVES = """
SELECT position, project, id, kind, task_id, body, salt, leaf, chain FROM audit
WHERE project = $1 AND position > $2 AND position <= $3 ORDER BY position
"""
_HEAD = "SELECT position, chain FROM audit_head WHERE shard = '0'"
_MESSAGES = "SELECT id, body FROM messages WHERE project = $1"
_WRITTEN = """
SELECT store, id, version, body::text FROM records WHERE project = $1
UNION ALL SELECT store, id, version, body::text FROM history WHERE project = $1
"""


async def verify_log(connection: Any, project: str, task_id: str | None) -> dict[str, Any]:
    """Recompute every leaf and the chain over all projects, and every record of `project` against what was committed.

    With `task_id` the counts are those of one task; the chain is checked whole either way. The report:
    `ok`, `leaves`, `commits`, `refusals`, `records`, `head` (position and chain, to compare with a copy kept
    elsewhere) and `broken`, the first faults with their positions. Reads in batches and works in threads. The
    connection has to be in a transaction, and is left fenced to `project`.
    """
    projects = [row["project"] for row in await connection.fetch(_PROJECTS)]
    head = await connection.fetchrow(_HEAD)
    check = _Check(project, task_id)
    for start in range(0, head["position"], _WINDOW):
        leaves = []
        for name in projects:
            await connection.execute(_FENCE, name)
            leaves += await connection.fetch(_LEAVES, name, start, min(start + _WINDOW, head["position"]))
        await asyncio.to_thread(check.leaves, leaves)
    check.end(head["position"], head["chain"])
    await connection.execute(_FENCE, project)
    async for rows in _batches(connection, _WRITTEN, project):
        await asyncio.to_thread(check.records, rows)
    check.gone()
    async for rows in _batches(connection, _MESSAGES, project):
        await asyncio.to_thread(check.messages, rows)
    return {
        "ok": not check.broken,
        "project": project,
        "task_id": task_id,
        "leaves": sum(check.counts.values()),
        "commits": check.counts["commit"],
        "refusals": check.counts["refusal"],
        "records": check.found,
        "head": {"position": head["position"], "chain": head["chain"].hex()},
        "broken": check.broken[:_NAMED],
        "broken_count": len(check.broken),
    }


async def _batches(connection: Any, statement: str, project: str) -> AsyncIterator[list[Any]]:
    cursor = await connection.cursor(statement, project)
    while rows := await cursor.fetch(_BATCH):
        yield rows


class _Check:
    """What the leaves say was written and sent, and every fault found so far."""

    def __init__(self, project: str, task_id: str | None) -> None:
        self._project = project
        self._task_id = task_id
        self._position, self._chain = 0, GENESIS
        self._written: dict[tuple[str, str, int], str] = {}
        self._sent: dict[str, str] = {}
        self.counts = {"commit": 0, "refusal": 0}
        self.found = 0
        self.broken: list[str] = []

    def leaves(self, rows: Iterable[Any]) -> None:
        """The next leaves of all projects, in any order."""
        for row in sorted(rows, key=lambda row: row["position"]):
            self._position += 1
            if row["position"] != self._position:
                self.broken.append(f"leaf {self._position} is missing")
                self._position = row["position"]
            leaf = hashlib.sha256(row["salt"] + row["body"].encode()).digest()
            self._chain = hashlib.sha256(self._chain + leaf).digest()
            if leaf != row["leaf"]:
                self.broken.append(f"leaf {self._position} was changed")
            if self._chain != row["chain"]:
                self.broken.append(f"the chain breaks at leaf {self._position}")
                self._chain = row["chain"]
            if row["project"] == self._project:
                self._own(row)

    def _own(self, row: Any) -> None:
        if self._task_id is None or row["task_id"] == self._task_id:
            self.counts[row["kind"]] += 1
        committed = json.loads(row["body"])
        for store, record_id, version, sha256 in committed.get("writes", ()):
            self._written[store, record_id, version] = sha256
        for message_id, _, sha256 in committed.get("messages", ()):
            self._sent[message_id] = sha256

    def end(self, position: int, chain: bytes) -> None:
        """All leaves were seen."""
        if (self._position, self._chain) != (position, chain):
            self.broken.append(f"the log ends at leaf {self._position}, its head says {position}")

    def records(self, rows: Iterable[Any]) -> None:
        """Some records, each once, after all leaves."""
        for row in rows:
            self.found += 1
            text = "" if row["body"] is None else canonical(json.loads(row["body"]))
            committed = self._written.pop((row["store"], row["id"], row["version"]), None)
            if committed != hashlib.sha256(text.encode()).hexdigest():
                self.broken.append(f"{row['store']}/{row['id']} at version {row['version']} is not as it was committed")

    def gone(self) -> None:
        """All records were seen."""
        for store, record_id, version in self._written:
            self.broken.append(f"{store}/{record_id} at version {version} is gone")
        self._written.clear()

    def messages(self, rows: Iterable[Any]) -> None:
        """Some messages, after all leaves."""
        for row in rows:
            if self._sent.get(str(row["id"]), "") not in ("", hashlib.sha256(row["body"].encode()).hexdigest()):
                self.broken.append(f"message {row['id']} is not as it was sent")

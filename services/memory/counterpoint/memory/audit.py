"""The audit log: a leaf per commit and per refusal, chained; and the check that nothing was changed afterwards."""

import hashlib
import json
from typing import Any

from counterpoint.memory.rows import canonical

GENESIS = hashlib.sha256(b"counterpoint audit").digest()
_WINDOW = 5000
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
SELECT store, id, version, body FROM records WHERE project = $1
UNION ALL SELECT store, id, version, body FROM history WHERE project = $1
"""


async def verify_log(connection: Any, project: str, task_id: str | None) -> dict[str, Any]:
    """Recompute every leaf and the chain over all projects, and every record of `project` against what was committed.

    With `task_id` the counts are those of one task; the chain is checked whole either way. The report:
    `ok`, `leaves`, `commits`, `refusals`, `records`, `head` (position and chain, to compare with a copy kept
    elsewhere) and `broken`, the first faults with their positions. Leaves the connection fenced to `project`.
    """
    projects = [row["project"] for row in await connection.fetch(_PROJECTS)]
    head = await connection.fetchrow(_HEAD)
    broken: list[str] = []
    counts = {"commit": 0, "refusal": 0}
    written: dict[tuple[str, str, int], str] = {}
    sent: dict[str, str] = {}
    chain, position, start = GENESIS, 0, 0
    while start < head["position"]:
        end = min(start + _WINDOW, head["position"])
        leaves = []
        for name in projects:
            await connection.execute(_FENCE, name)
            leaves += await connection.fetch(_LEAVES, name, start, end)
        for row in sorted(leaves, key=lambda row: row["position"]):
            position += 1
            if row["position"] != position:
                broken.append(f"leaf {position} is missing")
                position = row["position"]
            leaf = hashlib.sha256(row["salt"] + row["body"].encode()).digest()
            chain = hashlib.sha256(chain + leaf).digest()
            if leaf != row["leaf"]:
                broken.append(f"leaf {position} was changed")
            if chain != row["chain"]:
                broken.append(f"the chain breaks at leaf {position}")
                chain = row["chain"]
            if row["project"] == project:
                if task_id is None or row["task_id"] == task_id:
                    counts[row["kind"]] += 1
                committed = json.loads(row["body"])
                for store, record_id, version, sha256 in committed.get("writes", ()):
                    written[store, record_id, version] = sha256
                for message_id, _, sha256 in committed.get("messages", ()):
                    sent[message_id] = sha256
        start = end
    if position != head["position"] or chain != head["chain"]:
        broken.append(f"the log ends at leaf {position}, its head says {head['position']}")
    await connection.execute(_FENCE, project)
    records = 0
    found: set[tuple[str, str, int]] = set()
    for row in await connection.fetch(_WRITTEN, project):
        records += 1
        text = "" if row["body"] is None else canonical(row["body"])
        if written.get((row["store"], row["id"], row["version"])) != hashlib.sha256(text.encode()).hexdigest():
            broken.append(f"{row['store']}/{row['id']} at version {row['version']} is not as it was committed")
        found.add((row["store"], row["id"], row["version"]))
    for store, record_id, version in written.keys() - found:
        broken.append(f"{store}/{record_id} at version {version} is gone")
    for row in await connection.fetch(_MESSAGES, project):
        if sent.get(str(row["id"]), "") not in ("", hashlib.sha256(row["body"].encode()).hexdigest()):
            broken.append(f"message {row['id']} is not as it was sent")
    return {
        "ok": not broken,
        "project": project,
        "task_id": task_id,
        "leaves": sum(counts.values()),
        "commits": counts["commit"],
        "refusals": counts["refusal"],
        "records": records,
        "head": {"position": head["position"], "chain": head["chain"].hex()},
        "broken": broken[:_NAMED],
        "broken_count": len(broken),
    }

"""Labels of what a recorded delivery has read, for a prompt that is built from it again."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from counterpoint.memory.audit.leaf_body import expanded
from counterpoint.memory.audit.packed_leaf import leaf_text
from counterpoint.memory.provenance.read_sets import COMMITS_USED
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.proto.commands import IssueReplayToken
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.subjects import SHARED_PROJECT

_SQL = load_statements(__package__)


@dataclass(frozen=True, slots=True)
class RecordedReads:
    """The service of a recorded delivery, and the highest label of its inbound message and of what it has read."""

    service: str
    label: int


async def recorded_delivery(connection: Any, project: str, request: IssueReplayToken) -> RecordedReads:
    """Return the reads of a delivery, and those that its replay adds, each with the label of the version that was read
    and the one that its record has now, if that is higher.

    Raises `Permanent` `not_found` for a commit of another task, and where something is no longer in the record.
    """
    row = await connection.fetchrow(_SQL["recorded_commit"], project, _uuid(request.commit_id))
    body = row and leaf_text(row["body"], row["packed_leaf"])
    leaf = expanded(json.loads(body)) if body is not None else None
    if leaf is None or leaf["task"] != request.task_id:
        raise _missing("is not a commit of this task")
    sent = await connection.fetchval(_SQL["label_of_message"], project, _uuid(leaf["message"]))
    if sent is None or row["reads"] is None:
        raise _missing("what it was given is no longer in the record")
    reads = [(read[0], read[1], read[2]) for read in json.loads(row["reads"]) if read[0] != COMMITS_USED]
    wanted = list(dict.fromkeys([*reads, *((each.store, each.id, each.version) for each in request.read)]))
    return RecordedReads(leaf["service"], max([sent, *await _labels(connection, project, wanted)]))


async def _labels(connection: Any, project: str, wanted: Iterable[tuple[str, str, int]]) -> list[int]:
    columns = [list(column) for column in zip(*wanted, strict=True)]
    if not columns:
        return []
    rows = await connection.fetch(_SQL["labels_of_versions"], [project, SHARED_PROJECT], *columns)
    if any(not row["known"] for row in rows):
        raise _missing("what it was given is no longer in the record")
    return [row["label"] for row in rows]


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _missing(problem: str) -> Permanent:
    return Permanent(ErrorCode.NOT_FOUND, (Problem(field="commit_id", problem=problem),))

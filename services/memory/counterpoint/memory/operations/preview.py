"""Preview of a take-back: the result that it would have, without a commit."""

from collections import Counter
from typing import assert_never

from counterpoint.memory.operations.changes import VersionHistory
from counterpoint.memory.operations.extent import Extent
from counterpoint.memory.record.database import Database
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.memory import PreviewedRecord, TakeBack, TakeBackPreview
from counterpoint.proto.subjects import SHARED_PROJECT

NAMED = 200
"""Maximum number of records and of tasks that a preview names."""


async def preview(
    extent: Extent, changes: VersionHistory, database: Database, project: str, take_back: TakeBack
) -> TakeBackPreview:
    """Return the preview of a quarantine or rollback in a project.

    Raises `Permanent` `not_found` for an item that cannot be taken back, `invalid` for a lift.
    """
    match take_back.kind:
        case "lift":
            raise Permanent(ErrorCode.INVALID, (Problem(field="preview", problem="is not available for a lift"),))
        case "quarantine" | "rollback":
            kind = take_back.kind
        case _:
            assert_never(take_back.kind)
    take_back = await extent.versioned(project, take_back)
    roots = await extent.roots(project, take_back)
    wrong, tasks = await extent.of(project, roots)
    changed = await changes.of(project, wrong, restores=take_back.restores)
    others = [each for each in await database.projects() if each != SHARED_PROJECT] if project == SHARED_PROJECT else []
    own_first = sorted(changed, key=lambda each: (each.store, each.id) != (take_back.store, take_back.id))
    return TakeBackPreview(
        kind=kind,
        store=take_back.store,
        id=take_back.id,
        version=take_back.version or 1,
        out=Counter(each.store for each in changed if each.before is None),
        restored=Counter(each.store for each in changed if each.before is not None),
        records=tuple(
            PreviewedRecord(store=each.store, id=each.id, version=each.present, restored=each.before)
            for each in own_first[:NAMED]
        ),
        tasks=tasks[:NAMED],
        tasks_count=len(tasks),
        other_projects=sum([await extent.dependents_in(each, roots) for each in others]),
        truncated=len(changed) > NAMED or len(tasks) > NAMED,
    )

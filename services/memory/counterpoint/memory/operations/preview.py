"""Preview of a take-back: the result that it would have, and what a second person approves, without a commit."""

from collections import Counter
from collections.abc import Sequence
from typing import assert_never

from counterpoint.memory.operations.changes import RecordRollback, VersionHistory
from counterpoint.memory.operations.extent import LIMIT, Extent
from counterpoint.memory.operations.large_acts import PlannedAct
from counterpoint.memory.provenance.influence import Version
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
        other_projects=sum([await extent.dependents_in(each, roots) > 0 for each in others]),
        truncated=len(changed) > NAMED or len(tasks) > NAMED,
    )


async def planned(
    extent: Extent,
    database: Database,
    project: str,
    take_back: TakeBack,
    roots: frozenset[Version],
    changes: Sequence[RecordRollback],
) -> PlannedAct:
    """Return a take-back of some changes before it is done, with the versions in other projects if the item is
    shared."""
    others = [each for each in await database.projects() if project == SHARED_PROJECT != each]
    in_others = {each: await extent.dependents_in(each, roots, LIMIT) for each in others}
    lines = sorted(f"{each.store}/{each.id}: {_effect(each)}" for each in changes)
    lines += [f"project {name}: {count} versions" for name, count in sorted(in_others.items()) if count]
    outs = sum(each.before is None for each in changes)
    return PlannedAct(
        kind="take_back",
        name=f"{take_back.kind} {take_back.store}/{take_back.id} from version {take_back.version} on",
        size=len(changes) + sum(in_others.values()),
        counts=f"{outs} records are taken out, {len(changes) - outs} restored",
        lines=lines,
    )


def _effect(change: RecordRollback) -> str:
    if change.before is None:
        return f"version {change.present} is taken out"
    return f"version {change.before} replaces {change.present}"

"""Dependents: the items derived from one item, nearest first."""

from counterpoint.guard.capabilities import Grant
from counterpoint.guard.policy import Policy
from counterpoint.memory.access import diode
from counterpoint.memory.provenance.influence import Influence
from counterpoint.memory.query.item_view import projects
from counterpoint.proto.memory import Dependents, MemoryRadius, QueryPlan, QueryResult, Ref, RestingItem

_REPLY_BYTES = 900_000
"""Size limit of the items of a reply."""


async def dependents(policy: Policy, influence: Influence, grant: Grant, query: Dependents) -> QueryResult:
    """Return everything derived from an item of the project, or of the shared project if it has none."""
    for project in projects(policy, grant, query.store):
        roots = await influence.roots(project, query.store, query.id, query.version)
        if roots:
            shared = project != grant.project
            radius = await influence.of(grant.project, roots, shared=shared, limit=query.limit)
            used = {each.key for each in radius.touched}
            if query.shown:
                radius = await influence.of(grant.project, roots, reach="shown", shared=shared, limit=query.limit)
            break
    else:
        return QueryResult(tier="record", plan=QueryPlan.INFLUENCE, took_us=0)
    shown = [
        each
        for each in radius.touched
        if each.label <= grant.clearance and diode.read(policy, grant, each.store) is None
    ]
    items = [
        RestingItem(
            store=each.store, id=each.id, version=each.version, hops=each.hops, cited=each.key in used,
            task_id=each.task_id, at=each.at,
        )
        for each in shown
    ]  # fmt: skip
    # The nearest, as many as a message carries with their tasks.
    size = 0
    for n, each in enumerate(items):
        size += len(each.model_dump_json()) + 100
        if size > _REPLY_BYTES:
            items = items[:n]
            break
    report = MemoryRadius(
        item=Ref(store=query.store, id=query.id, version=query.version),
        items=tuple(items),
        tasks=tuple(dict.fromkeys(each.task_id for each in items if each.task_id)),
        truncated=radius.truncated or len(items) < len(shown),
    )
    return QueryResult(tier="record", plan=QueryPlan.INFLUENCE, took_us=0, report=report.model_dump(mode="json"))

"""The commit of links that people declare between incidents: parts count under the incident they belong to."""

from collections.abc import Sequence

from counterpoint.client import Memory, decide, put, record, send
from counterpoint.graph.walks import LineageGraph
from counterpoint.lineage.incidents.context import STORE, IncidentContext
from counterpoint.lineage.incidents.incident import LEDGER_ID, IncidentRecord
from counterpoint.lineage.incidents.incident_commit import AGENT, incident_commit
from counterpoint.lineage.incidents.joins import apply_joins
from counterpoint.lineage.incidents.matching import IncidentChanges
from counterpoint.lineage.query_batcher import QueryBatcher
from counterpoint.proto.links import Link
from counterpoint.proto.memory import Commit, Get, List, RecordsChanged

LINKS = "links"
_JOINED_LIMIT = 20
"""Maximum number of incidents with a join of one link; more than one only after the link was reversed."""


def changed_links(changed: RecordsChanged) -> tuple[str, ...]:
    """Return the ids of the links that a commit wrote or deleted."""
    return tuple(dict.fromkeys(ref.id for ref in changed.writes if ref.store == LINKS))


async def commit_for_links(link_ids: Sequence[str], memory: Memory) -> Commit:
    """Set the joins of incidents to the current links.

    The ledger is written too, so that concurrent changes of one pair conflict. Raises `Transient` or
    `Denied`.
    """
    batcher = QueryBatcher(memory)
    context = IncidentContext(batcher, LineageGraph(batcher))
    ledger, *answers = await batcher.query(
        Get(store=STORE, id=LEDGER_ID),
        *(Get(store=LINKS, id=each) for each in link_ids),
        *(List(store=STORE, where={"joins": [{"link": each}]}, limit=_JOINED_LIMIT) for each in link_ids),
    )
    context.set_ledger(ledger)
    if context.ledger_item is None:
        return Commit()
    pairs: dict[str, tuple[str, str] | None] = dict.fromkeys(link_ids)
    for answer in answers[: len(link_ids)]:
        for item in answer.items:
            link = record(item, Link)
            parent, part = (side.task_id for side in link.pair)
            pairs[item.id] = (part, parent) if link.relation == "merged" else None
    ids = {each for pair in pairs.values() if pair for each in pair}
    await context.read(ids | {item.id for answer in answers[len(link_ids) :] for item in answer.items})
    changed = apply_joins(context.incidents, pairs)
    context.incidents |= changed
    commit = await incident_commit(batcher, context, IncidentChanges(ledger=context.ledger), {}, None)
    decisions = tuple(
        send(decide(memory, AGENT, "incident", _action(context, after), _reason(after), step=after.incident_id))
        for after in changed.values()
        if after.joins != _before(context, after).joins
    )
    ledger_write = put(STORE, LEDGER_ID, context.ledger, existing=context.ledger_item)
    return commit.model_copy(
        update={"writes": (*commit.writes, ledger_write), "messages": (*commit.messages, *decisions)}
    )


def _before(context: IncidentContext, incident: IncidentRecord) -> IncidentRecord:
    return record(context.items[incident.incident_id], IncidentRecord)


def _action(context: IncidentContext, after: IncidentRecord) -> str:
    return "joined_by_person" if len(after.joins) > len(_before(context, after).joins) else "parted_by_person"


def _reason(incident: IncidentRecord) -> str:
    into = ", ".join(join.into for join in incident.joins)
    return f"{incident.incident_id}: merged into {into}" if into else f"{incident.incident_id}: not merged"

"""Effects of people's word on incidents: parts are shown and counted under the one they were merged into (row F5)."""

from collections.abc import Sequence

from counterpoint.lineage.endings import AGENT, commit_of
from counterpoint.lineage.incidents import LEDGER_ID, Incident
from counterpoint.lineage.joining import rejoined
from counterpoint.lineage.reads import Reads
from counterpoint.lineage.settling import Settlement
from counterpoint.lineage.standing import STORE, Desk
from counterpoint.proto.links import Link
from counterpoint.proto.memory import Commit, Get, List, RecordsChanged
from counterpoint.recall import Memory, decide, put, record, send
from counterpoint.recall.walks import Graph

LINKS = "links"
_JOINED_LIMIT = 20
"""Incidents that hold a join of one link at most: more than one only where it was turned round."""


def links_of(changed: RecordsChanged) -> tuple[str, ...]:
    """The links that a commit wrote or deleted."""
    return tuple(dict.fromkeys(ref.id for ref in changed.writes if ref.store == LINKS))


async def relinked(link_ids: Sequence[str], memory: Memory) -> Commit:
    """The effects of links as they are now: joins that they say and no others.

    The ledger is written with them, so that of two words on one pair the later one stays. Raises `Transient` or
    `Denied`.
    """
    reads = Reads(memory)
    desk = Desk(reads, Graph(reads))
    ledger, *found = await reads.query(
        Get(store=STORE, id=LEDGER_ID),
        *(Get(store=LINKS, id=each) for each in link_ids),
        *(List(store=STORE, where={"joins": [{"link": each}]}, limit=_JOINED_LIMIT) for each in link_ids),
    )
    desk.take_ledger(ledger)
    if desk.ledger_item is None:
        return Commit()
    said: dict[str, tuple[str, str] | None] = dict.fromkeys(link_ids)
    for answer in found[: len(link_ids)]:
        for item in answer.items:
            link = record(item, Link)
            whole, part = (side.task_id for side in link.pair)
            said[item.id] = (part, whole) if link.relation == "merged" else None
    named = {each for pair in said.values() if pair for each in pair}
    await desk.read(named | {item.id for answer in found[len(link_ids) :] for item in answer.items})
    changed = rejoined(desk.incidents, said)
    desk.incidents |= changed
    commit = await commit_of(reads, desk, Settlement(ledger=desk.ledger), {}, None)
    decisions = tuple(
        send(decide(memory, AGENT, "incident", _what(desk, after), _reason(after), step=after.incident_id))
        for after in changed.values()
        if after.joins != _before(desk, after).joins
    )
    ledger_write = put(STORE, LEDGER_ID, desk.ledger, seen=desk.ledger_item)
    return commit.model_copy(
        update={"writes": (*commit.writes, ledger_write), "messages": (*commit.messages, *decisions)}
    )


def _before(desk: Desk, incident: Incident) -> Incident:
    return record(desk.items[incident.incident_id], Incident)


def _what(desk: Desk, after: Incident) -> str:
    return "joined_by_person" if len(after.joins) > len(_before(desk, after).joins) else "parted_by_person"


def _reason(incident: Incident) -> str:
    into = ", ".join(join.into for join in incident.joins)
    return f"{incident.incident_id}: a part of {into}" if into else f"{incident.incident_id}: a part of none"

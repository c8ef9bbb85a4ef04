"""Joins: incidents that people declared to be parts of others. Pure.

Each incident keeps its own record, failures and task, so that removing a join restores both. A join applies while both
incidents are active; a merged incident is represented by the incident it was merged into.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from counterpoint.lineage.incidents.incident import IncidentEnding, IncidentJoin, IncidentRecord


def joined_ids(incidents: Iterable[IncidentRecord]) -> set[str]:
    """Return the ids of the incidents that these are joined with, in either direction."""
    incidents = list(incidents)
    return {part for i in incidents for part in i.parts} | {join.into for i in incidents for join in i.joins}


def parent_by_part(incidents: Mapping[str, IncidentRecord]) -> dict[str, str]:
    """Map each active part to the active incident at the top of its joins, by id."""
    parent_ids: dict[str, str] = {}
    for incident in sorted(incidents.values(), key=lambda one: (one.opened_at, one.incident_id)):
        for join in incident.joins:
            part, parent = _active(incidents, incident.incident_id), _active(incidents, join.into)
            if part is None or parent is None:
                continue
            part, parent = _top(parent_ids, part), _top(parent_ids, parent)
            if part != parent:
                parent_ids[part] = parent
    return {part: _top(parent_ids, part) for part in parent_ids}


def parts_by_parent(incidents: Mapping[str, IncidentRecord]) -> dict[str, tuple[IncidentRecord, ...]]:
    """Map each active incident to its parts, earliest first, including parts that have ended."""
    parent_ids = parent_by_part(incidents)
    found: dict[str, list[IncidentRecord]] = defaultdict(list)
    for incident in sorted(incidents.values(), key=lambda one: (one.first_at, one.incident_id)):
        parent = parent_ids.get(incident.incident_id)
        if not incident.active and incident.ending is not IncidentEnding.MERGED:
            into = (_active(incidents, join.into) for join in incident.joins)
            parent = next((parent_ids.get(each, each) for each in into if each is not None), None)
        if parent is not None:
            found[parent].append(incident)
    return {parent: tuple(of) for parent, of in found.items()}


def apply_joins(
    incidents: Mapping[str, IncidentRecord], pairs: Mapping[str, tuple[str, str] | None]
) -> dict[str, IncidentRecord]:
    """Return the incidents that change when links are set to `pairs`: part and parent by link id, None for no join."""
    joins: dict[str, Sequence[IncidentJoin]] = {
        incident_id: [join for join in incident.joins if join.link not in pairs]
        for incident_id, incident in incidents.items()
    }
    for link, pair in sorted(pairs.items()):
        if pair is not None and all(each in incidents for each in pair):
            part, parent = pair
            joins[part] = [*joins[part], IncidentJoin(link=link, into=parent)]
    before = {(join.into, part) for part, incident in incidents.items() for join in incident.joins}
    after = {(join.into, part) for part, of in joins.items() for join in of}
    leads = {each for pair in after for each in pair} | {each for each, i in incidents.items() if i.parts}
    merged = {
        (i.closed_by, each) for each, i in incidents.items() if i.ending is IncidentEnding.MERGED and each in leads
    }
    changed = {}
    for incident_id, incident in incidents.items():
        own = set(incident.parts) - {part for into, part in before - after if into == incident_id}
        own |= {part for into, part in after | merged if into == incident_id}
        values = {"joins": tuple(sorted(joins[incident_id], key=lambda join: join.link)), "parts": tuple(sorted(own))}
        if values != {"joins": incident.joins, "parts": incident.parts}:
            changed[incident_id] = incident.model_copy(update=values)
    return changed


def _active(incidents: Mapping[str, IncidentRecord], incident_id: str) -> str | None:
    """Return the id of the active incident that has the failures of this one, through merges."""
    been = set[str]()
    while (incident := incidents.get(incident_id)) is not None and incident_id not in been:
        if incident.active:
            return incident_id
        if incident.ending is not IncidentEnding.MERGED or incident.closed_by is None:
            return None
        been.add(incident_id)
        incident_id = incident.closed_by
    return None


def _top(parent_ids: Mapping[str, str], incident_id: str) -> str:
    while incident_id in parent_ids:
        incident_id = parent_ids[incident_id]
    return incident_id

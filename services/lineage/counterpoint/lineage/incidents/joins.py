"""Joins: incidents that people declared to be parts of others. Pure.

Each incident keeps its own record, failures and task, so that removing a join restores both. A join applies while both
incidents are active; a merged incident is represented by the incident it was merged into.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from counterpoint.lineage.incidents.incident import IncidentEnding, IncidentJoin, IncidentRecord


def joined_ids(incidents: Iterable[IncidentRecord]) -> set[str]:
    """Ids of the incidents that these are joined with, in either direction."""
    known = list(incidents)
    return {part for i in known for part in i.parts} | {join.into for i in known for join in i.joins}


def parent_by_part(known: Mapping[str, IncidentRecord]) -> dict[str, str]:
    """Map each active part to the active incident at the top of its joins, by id."""
    above: dict[str, str] = {}
    for incident in sorted(known.values(), key=lambda one: (one.opened_at, one.incident_id)):
        for join in incident.joins:
            part, whole = _active(known, incident.incident_id), _active(known, join.into)
            if part is None or whole is None:
                continue
            part, whole = _top(above, part), _top(above, whole)
            if part != whole:
                above[part] = whole
    return {part: _top(above, part) for part in above}


def parts_by_parent(known: Mapping[str, IncidentRecord]) -> dict[str, tuple[IncidentRecord, ...]]:
    """Map each active incident to its parts, earliest first, including parts that have ended."""
    above = parent_by_part(known)
    found: dict[str, list[IncidentRecord]] = defaultdict(list)
    for incident in sorted(known.values(), key=lambda one: (one.first_at, one.incident_id)):
        whole = above.get(incident.incident_id)
        if not incident.active and incident.ending is not IncidentEnding.MERGED:
            into = (_active(known, join.into) for join in incident.joins)
            whole = next((above.get(each, each) for each in into if each is not None), None)
        if whole is not None:
            found[whole].append(incident)
    return {whole: tuple(of) for whole, of in found.items()}


def apply_joins(
    known: Mapping[str, IncidentRecord], pairs: Mapping[str, tuple[str, str] | None]
) -> dict[str, IncidentRecord]:
    """Return the incidents that change when links are set to `pairs`: part and whole by link id, None for no join."""
    joins: dict[str, Sequence[IncidentJoin]] = {
        incident_id: [join for join in incident.joins if join.link not in pairs]
        for incident_id, incident in known.items()
    }
    for link, pair in sorted(pairs.items()):
        if pair is not None and all(each in known for each in pair):
            part, whole = pair
            joins[part] = [*joins[part], IncidentJoin(link=link, into=whole)]
    before = {(join.into, part) for part, incident in known.items() for join in incident.joins}
    after = {(join.into, part) for part, of in joins.items() for join in of}
    leads = {each for pair in after for each in pair} | {each for each, i in known.items() if i.parts}
    merged = {(i.closed_by, each) for each, i in known.items() if i.ending is IncidentEnding.MERGED and each in leads}
    changed = {}
    for incident_id, incident in known.items():
        own = set(incident.parts) - {part for into, part in before - after if into == incident_id}
        own |= {part for into, part in after | merged if into == incident_id}
        values = {"joins": tuple(sorted(joins[incident_id], key=lambda join: join.link)), "parts": tuple(sorted(own))}
        if values != {"joins": incident.joins, "parts": incident.parts}:
            changed[incident_id] = incident.model_copy(update=values)
    return changed


def _active(known: Mapping[str, IncidentRecord], incident_id: str) -> str | None:
    """Id of the active incident that has the failures of this one, through merges."""
    been = set[str]()
    while (incident := known.get(incident_id)) is not None and incident_id not in been:
        if incident.active:
            return incident_id
        if incident.ending is not IncidentEnding.MERGED or incident.closed_by is None:
            return None
        been.add(incident_id)
        incident_id = incident.closed_by
    return None


def _top(above: Mapping[str, str], incident_id: str) -> str:
    while incident_id in above:
        incident_id = above[incident_id]
    return incident_id

"""Joining: incidents that people declared to be parts of others, and which stand as one because of it. Pure.

Each keeps its record, its failures and its task, so that the course of either is the same with a join as without, and
undoing one leaves nothing behind. A join holds while both stand; what was merged into another is joined as that.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from counterpoint.lineage.incidents import Ending, Incident, Join


def joined(incidents: Iterable[Incident]) -> set[str]:
    """The ids that joins of some incidents lead to, either way."""
    known = list(incidents)
    return {part for i in known for part in i.parts} | {join.into for i in known for join in i.joins}


def wholes(known: Mapping[str, Incident]) -> dict[str, str]:
    """The standing incident that each standing part is handled under, by id; parts of parts are under the topmost."""
    above: dict[str, str] = {}
    for incident in sorted(known.values(), key=lambda one: (one.opened_at, one.incident_id)):
        for join in incident.joins:
            part, whole = _standing(known, incident.incident_id), _standing(known, join.into)
            if part is None or whole is None:
                continue
            part, whole = _top(above, part), _top(above, whole)
            if part != whole:
                above[part] = whole
    return {part: _top(above, part) for part in above}


def parts(known: Mapping[str, Incident]) -> dict[str, tuple[Incident, ...]]:
    """The parts of each standing whole, by its id, the earliest first; also those that have ended before it."""
    above = wholes(known)
    found: dict[str, list[Incident]] = defaultdict(list)
    for incident in sorted(known.values(), key=lambda one: (one.first_at, one.incident_id)):
        whole = above.get(incident.incident_id)
        if not incident.active and incident.ending is not Ending.MERGED:
            into = (_standing(known, join.into) for join in incident.joins)
            whole = next((above.get(each, each) for each in into if each is not None), None)
        if whole is not None:
            found[whole].append(incident)
    return {whole: tuple(of) for whole, of in found.items()}


def rejoined(known: Mapping[str, Incident], said: Mapping[str, tuple[str, str] | None]) -> dict[str, Incident]:
    """The incidents that change by what is `said` now in some links: part and whole of each, or nothing."""
    joins: dict[str, Sequence[Join]] = {
        incident_id: [join for join in incident.joins if join.link not in said]
        for incident_id, incident in known.items()
    }
    for link, pair in sorted(said.items()):
        if pair is not None and all(each in known for each in pair):
            part, whole = pair
            joins[part] = [*joins[part], Join(link=link, into=whole)]
    before = {(join.into, part) for part, incident in known.items() for join in incident.joins}
    after = {(join.into, part) for part, of in joins.items() for join in of}
    leads = {each for pair in after for each in pair} | {each for each, i in known.items() if i.parts}
    merged = {(i.closed_by, each) for each, i in known.items() if i.ending is Ending.MERGED and each in leads}
    changed = {}
    for incident_id, incident in known.items():
        own = set(incident.parts) - {part for into, part in before - after if into == incident_id}
        own |= {part for into, part in after | merged if into == incident_id}
        values = {"joins": tuple(sorted(joins[incident_id], key=lambda join: join.link)), "parts": tuple(sorted(own))}
        if values != {"joins": incident.joins, "parts": incident.parts}:
            changed[incident_id] = incident.model_copy(update=values)
    return changed


def _standing(known: Mapping[str, Incident], incident_id: str) -> str | None:
    """The incident that accounts for another's failures, if it stands."""
    been = set[str]()
    while (incident := known.get(incident_id)) is not None and incident_id not in been:
        if incident.active:
            return incident_id
        if incident.ending is not Ending.MERGED or incident.closed_by is None:
            return None
        been.add(incident_id)
        incident_id = incident.closed_by
    return None


def _top(above: Mapping[str, str], incident_id: str) -> str:
    while incident_id in above:
        incident_id = above[incident_id]
    return incident_id

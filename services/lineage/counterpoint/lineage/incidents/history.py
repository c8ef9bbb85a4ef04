"""History of an incident: earlier incidents of its job, and the number of equal failures before it. Pure."""

from collections.abc import Iterable

from counterpoint.lineage.incidents.incident import EarlierFailures, IncidentEnding, IncidentRecord


def add_history(incident: IncidentRecord, known: Iterable[IncidentRecord], *, cut: bool = False) -> IncidentRecord:
    """Return the incident with its history, from `known` incidents of its job.

    `cut`: older incidents are missing from `known`; the oldest one given has their counts.
    """
    past = [
        one
        for one in known
        if one.job == incident.job and one.incident_id != incident.incident_id and _has_happened(one)
    ]
    last = max((one for one in past if one.asked), key=lambda one: (one.last_at, one.incident_id), default=None)
    alike = [one for one in past if one.signature == incident.signature]
    return incident.model_copy(
        update={"previous": last.incident_id if last else None, "earlier": _counted(alike, cut=cut) if alike else None}
    )


def _has_happened(incident: IncidentRecord) -> bool:
    """Whether it has ended and was not resolved by a retry of the same flow."""
    return incident.ending in (IncidentEnding.RUN, IncidentEnding.TASK) and any(
        not failed.passed for failed in incident.roots
    )


def _counted(alike: list[IncidentRecord], *, cut: bool) -> EarlierFailures:
    oldest = min(alike, key=lambda one: (one.first_at, one.incident_id))
    before = oldest.earlier if cut else None
    return EarlierFailures(
        count=sum(one.count for one in alike) + (before.count if before else 0),
        first_at=before.first_at if before else oldest.first_at,
    )

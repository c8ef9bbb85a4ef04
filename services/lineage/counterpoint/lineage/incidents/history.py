"""History of an incident: earlier incidents of its job, and the number of equal failures before it. Pure."""

from collections.abc import Iterable

from counterpoint.lineage.incidents.incident import EarlierFailures, IncidentEnding, IncidentRecord


def add_history(incident: IncidentRecord, incidents: Iterable[IncidentRecord], *, cut: bool = False) -> IncidentRecord:
    """Return the incident with its history, from the other `incidents` of its job.

    `cut`: older incidents are missing from `incidents`; the oldest one given has their counts.
    """
    past = [
        each
        for each in incidents
        if each.job == incident.job and each.incident_id != incident.incident_id and _has_happened(each)
    ]
    last = max(
        (each for each in past if each.has_task), key=lambda each: (each.last_at, each.incident_id), default=None
    )
    same = [each for each in past if each.signature == incident.signature]
    return incident.model_copy(
        update={
            "previous": last.incident_id if last else None,
            "earlier": _earlier_failures(same, cut=cut) if same else None,
        }
    )


def _has_happened(incident: IncidentRecord) -> bool:
    """Whether it has ended and was not resolved by a retry of the same flow."""
    return incident.ending in (IncidentEnding.RUN, IncidentEnding.TASK) and any(
        not failed.passed for failed in incident.roots
    )


def _earlier_failures(same: list[IncidentRecord], *, cut: bool) -> EarlierFailures:
    oldest = min(same, key=lambda each: (each.first_at, each.incident_id))
    before = oldest.earlier if cut else None
    return EarlierFailures(
        count=sum(each.count for each in same) + (before.count if before else 0),
        first_at=before.first_at if before else oldest.first_at,
    )

"""History of a failure: the incidents of the same job that ended before, and how often it failed the same way. Pure."""

from collections.abc import Iterable

from counterpoint.lineage.incidents import Earlier, Ending, Incident


def with_history(incident: Incident, known: Iterable[Incident], *, cut: bool = False) -> Incident:
    """The incident with what came before it, out of incidents of its job.

    `cut`: these are not all; the oldest of them has kept what was before it.
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


def _has_happened(incident: Incident) -> bool:
    """Whether it has ended and was a failure: a try that a further one put right is none."""
    return incident.ending in (Ending.RUN, Ending.TASK) and any(not failed.passed for failed in incident.roots)


def _counted(alike: list[Incident], *, cut: bool) -> Earlier:
    oldest = min(alike, key=lambda one: (one.first_at, one.incident_id))
    before = oldest.earlier if cut else None
    return Earlier(
        count=sum(one.count for one in alike) + (before.count if before else 0),
        first_at=before.first_at if before else oldest.first_at,
    )

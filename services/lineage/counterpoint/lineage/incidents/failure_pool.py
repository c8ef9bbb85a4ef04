"""Failures of several incidents in one pool: one record of each failed run, resolved where its task has ended.

Pure.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from counterpoint.lineage.incidents.failures import FailedRun
from counterpoint.lineage.incidents.grouping import flow_hashes
from counterpoint.lineage.incidents.incident import IncidentEnding, IncidentRecord, IncidentState

MOMENT = timedelta(microseconds=1)
"""Shortest time between the last failure of an incident and its end."""


def pool_failures(incidents: Iterable[IncidentRecord], fresh: Iterable[FailedRun]) -> list[FailedRun]:
    """Return the failures of the incidents and the `fresh` ones that belong to no ended task."""
    existing = [incident for incident in incidents if incident.ending is not IncidentEnding.MERGED]
    ended = [incident for incident in existing if incident.ending is IncidentEnding.TASK]
    pool: dict[str, FailedRun] = {}
    for incident in existing:
        for failed in incident.members.values():
            _add(pool, _resolved_with_task(incident, failed))
    for failed in fresh:
        if not any(_is_late(failed, incident) for incident in ended):
            _add(pool, failed)
    return list(pool.values())


def close_with_task(incident: IncidentRecord, ended_at: datetime) -> tuple[IncidentRecord, tuple[FailedRun, ...]]:
    """Close an incident with its task; return it and the failures that became known later."""
    late = tuple(one for one in incident.members.values() if one.known_at is not None and one.known_at > ended_at)
    runs = {failed.run_id for failed in late}
    remaining = tuple(failed for failed in incident.failures if failed.run_id not in runs)
    if not any(failed.job == incident.job for failed in remaining):
        remaining, late = incident.failures, ()
    flows = flow_hashes(incident.members.values())
    own = {flows[failed.run_id] for failed in remaining if failed.job == incident.job}
    removed = {flows[failed.run_id] for failed in late if failed.job == incident.job} - own
    closed = incident.model_copy(
        update={
            "state": IncidentState.CLOSED,
            "ending": IncidentEnding.TASK,
            "closed_at": ended_at,
            "closed_by": incident.incident_id,
            "failures": remaining,
            "affected": tuple(failed for failed in incident.affected if failed.run_id not in runs),
            "flows": tuple(flow for flow in incident.flows if flow not in removed),
            "count": incident.count - len(removed),
            "last_at": max(failed.at for failed in remaining),
        }
    )
    return closed, late


def _add(pool: dict[str, FailedRun], failed: FailedRun) -> None:
    """Add a failure to the pool; the latest one of a run replaces earlier ones."""
    existing = pool.get(failed.run_id)
    if existing is None or failed.at > existing.at:
        pool[failed.run_id] = failed
    elif failed.at == existing.at:
        pool[failed.run_id] = _merge(existing, failed)


def _merge(one: FailedRun, other: FailedRun) -> FailedRun:
    """Merge two records of one failure."""
    overs = [(each.over_at, each.over_by or "", each) for each in (one, other) if each.over_at is not None]
    over = min(overs, key=lambda each: each[:2])[2] if overs else one
    # The record that was made later has more fields of the run.
    latest = max((one, other), key=lambda each: (len(each.within), each.known_at is None))
    return latest.model_copy(
        update={
            "known_at": min((each.known_at for each in (one, other) if each.known_at), default=None),
            "waited": one.waited or other.waited,
            "whole": one.whole or other.whole,
            "over_at": over.over_at,
            "over_by": over.over_by,
            "passed": over.passed,
        }
    )


def _resolved_with_task(incident: IncidentRecord, failed: FailedRun) -> FailedRun:
    """Return a failure of an incident, resolved if the task of the incident has ended."""
    if incident.ending is not IncidentEnding.TASK or failed.over_at is not None:
        return failed
    until = max(incident.last_at, failed.at) + MOMENT
    return failed.model_copy(update={"over_at": until, "over_by": incident.incident_id})


def _is_late(failed: FailedRun, ended: IncidentRecord) -> bool:
    """Whether a new failure belongs to an incident whose task has ended."""
    existing = ended.members.get(failed.run_id)
    if existing is not None:
        return failed.at <= existing.at
    linked = any(failed.links & other.links for other in ended.failures)
    if failed.job == ended.job:
        return failed.at <= ended.last_at and (linked or failed.signature == ended.signature)
    return linked and any(failed.job in other.within for other in ended.failures)

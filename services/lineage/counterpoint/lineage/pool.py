"""Failures of several incidents in one pool: one reading of each failed run, and those of ended tasks over with them.

Pure.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from counterpoint.lineage.failures import FailedRun
from counterpoint.lineage.incidents import Ending, Incident, State

MOMENT = timedelta(microseconds=1)
"""The least time between the last failure of an incident and its end."""


def pooled(incidents: Iterable[Incident], fresh: Iterable[FailedRun]) -> list[FailedRun]:
    """The failures of the incidents with the `fresh` ones that no ended task accounts for."""
    known = [incident for incident in incidents if incident.ending is not Ending.MERGED]
    ended = [incident for incident in known if incident.ending is Ending.TASK]
    pool: dict[str, FailedRun] = {}
    for incident in known:
        for failed in incident.members.values():
            _add(pool, _settled(incident, failed))
    for failed in fresh:
        if not any(_is_late(failed, incident) for incident in ended):
            _add(pool, failed)
    return list(pool.values())


def end_of_task(incident: Incident, ended_at: datetime) -> tuple[Incident, tuple[FailedRun, ...]]:
    """The incident closed with its task, and the failures that became known only after that."""
    late = tuple(one for one in incident.members.values() if one.known_at is not None and one.known_at > ended_at)
    runs = {failed.run_id for failed in late}
    kept = tuple(failed for failed in incident.failures if failed.run_id not in runs)
    if not any(failed.job == incident.job for failed in kept):
        kept, late = incident.failures, ()
    known = [failed.at for failed in kept]
    closed = incident.model_copy(
        update={
            "state": State.CLOSED,
            "ending": Ending.TASK,
            "closed_at": ended_at,
            "closed_by": incident.incident_id,
            "failures": kept,
            "affected": tuple(failed for failed in incident.affected if failed.run_id not in runs),
            "last_at": max(known),
        }
    )
    return closed, late


def _add(pool: dict[str, FailedRun], failed: FailedRun) -> None:
    """Put a failure into the pool; of one run the latest failing counts."""
    known = pool.get(failed.run_id)
    if known is None or failed.at > known.at:
        pool[failed.run_id] = failed
    elif failed.at == known.at:
        pool[failed.run_id] = _joined(known, failed)


def _joined(one: FailedRun, other: FailedRun) -> FailedRun:
    """Merge two readings of one failing."""
    overs = [(each.over_at, each.over_by or "", each) for each in (one, other) if each.over_at is not None]
    over = min(overs, key=lambda each: each[:2])[2] if overs else one
    # Of two readings of one event the later one has more of the run's record.
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


def _settled(incident: Incident, failed: FailedRun) -> FailedRun:
    """A failure of an incident; with a task that has ended it is over since the last that was known by then."""
    if incident.ending is not Ending.TASK or failed.over_at is not None:
        return failed
    until = max(incident.last_at, failed.at) + MOMENT
    return failed.model_copy(update={"over_at": until, "over_by": incident.incident_id})


def _is_late(failed: FailedRun, ended: Incident) -> bool:
    """Whether an incident whose task has ended accounts for a failure that comes in now."""
    known = ended.members.get(failed.run_id)
    if known is not None:
        return failed.at <= known.at
    linked = any(failed.links & other.links for other in ended.failures)
    if failed.job == ended.job:
        return failed.at <= ended.last_at and (linked or failed.signature == ended.signature)
    return linked and any(failed.job in other.within for other in ended.failures)

"""Incidents (row F5): which failures are one, when a task is asked for, and when a later run closes it.

Deciding is pure; the records it decides on are those of the store `incidents`: one per incident, and one `Ledger` per
project, which every opening rewrites, so that two openings at once conflict and the second decides anew.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from counterpoint.lineage.failures import FailedRun, Failure, shows_over
from counterpoint.lineage.records import Run
from counterpoint.proto.messages import Shape, Time

LEDGER_ID = "ledger"
KEPT_FAILURES = 50
_HOUR = timedelta(hours=1)


class State(StrEnum):
    """`open`: a task was asked for; `capped`: not, the project had too many this hour; `closed`: a later run worked."""

    OPEN = "open"
    CAPPED = "capped"
    CLOSED = "closed"


class Incident(Shape):
    """One thing that is broken, and all failures that are it.

    `job`, `flow`, `signature` and `error_message` are of its origin, the failure deepest in the flow and latest.
    `count` is how many flows it has hit, `tries` how often the latest of them tried; `failures` are the latest
    `KEPT_FAILURES`, by which what comes twice is known.
    """

    incident_id: str
    state: State
    job: str
    flow: str
    signature: str
    error_message: str
    failures: tuple[FailedRun, ...]
    count: int
    tries: int
    opened_at: Time
    closed_at: Time | None = None
    closed_by: str | None = None

    @property
    def origin(self) -> FailedRun:
        """The failure that says what is broken."""
        return _origin(self.failures)

    @property
    def active(self) -> bool:
        """Whether failures still join it."""
        return self.state is not State.CLOSED


class Ledger(Shape):
    """When incidents of a project were opened, and when one was capped; the last hour of it."""

    opened: tuple[Time, ...] = ()
    capped: tuple[Time, ...] = ()

    def since(self, moment: datetime) -> "Ledger":
        """The ledger without what is older."""
        return Ledger(
            opened=tuple(at for at in self.opened if at > moment), capped=tuple(at for at in self.capped if at > moment)
        )


class Limits(Shape):
    """How many incidents a project may open in an hour, and how long a failed try with retries left is waited on."""

    incidents_per_hour: int
    retry_grace_s: float


class Why(StrEnum):
    """Why a failure was ignored."""

    DUPLICATE = "duplicate"
    RECOVERED = "recovered"
    LATE = "late"


class Open(Shape):
    """Write the incident and the ledger, ask for a task."""

    incident: Incident
    ledger: Ledger
    reason: str


class Join(Shape):
    """Write the incident; its task, if it has one, goes on."""

    incident: Incident
    reason: str


class Capped(Shape):
    """Write the incident and the ledger, ask for nothing, and say so."""

    incident: Incident
    ledger: Ledger
    reason: str


class Wait(Shape):
    """Decide again at `until`, with `waited`: the task is going to be tried again."""

    until: Time
    reason: str


class Ignore(Shape):
    """Nothing to do."""

    why: Why
    reason: str
    incident_id: str | None = None


Decision = Open | Join | Capped | Wait | Ignore


def decide(
    failure: Failure,
    known: Sequence[Incident],
    ledger: Ledger,
    limits: Limits,
    *,
    project: str,
    now: datetime,
    tries: Sequence[Failure] = (),
    successes: Sequence[Run] = (),
    waited: bool = False,
) -> Decision:
    """What to do about a failure.

    `known`: the incidents of the project that are open or capped, and those of this flow that are closed. `tries`:
    recorded failures of the same flow, of which those of the same job or of its parts belong to a new incident too.
    `successes`: completed runs of the same job that may show it is over. `waited`: the grace for retries has passed.
    """
    failed = failure.run
    for incident in known:
        if any(seen.id == failed.id for seen in incident.failures):
            return Ignore(why=Why.DUPLICATE, reason="this failure is known", incident_id=incident.incident_id)
    if over := next((run for run in successes if shows_over(run, failed)), None):
        return Ignore(why=Why.RECOVERED, reason=f"run {over.run_id} has completed since")
    related = [incident for incident in known if _is_one(failed, incident)]
    for incident in related:
        if not incident.active and incident.closed_at is not None and failed.at <= incident.closed_at:
            return Ignore(why=Why.LATE, reason="its incident is closed", incident_id=incident.incident_id)
    ledger = ledger.since(now - _HOUR)
    room = len(ledger.opened) < limits.incidents_per_hour
    same = [i for i in known if i.job == failed.job and i.signature == failed.signature]
    for why, found in (("it is of the same flow", related), ("the same job failed the same way", same)):
        for incident in sorted((i for i in found if i.active), key=lambda i: (i.opened_at, i.incident_id)):
            joined = _with(incident, failure)
            if incident.state is State.CAPPED and room:
                return _open(joined, ledger, now, "it was held back by the cap, and there is room now")
            return Join(incident=joined, reason=why)
    if failed.retries_left and not waited:
        until = now + timedelta(seconds=limits.retry_grace_s)
        if until > now:
            return Wait(until=until, reason=f"try {failed.try_number} of {(failed.retries or 0) + 1} failed")
    incident = _new(failure, tries, project, now)
    if room:
        return _open(incident, ledger, now, "no open incident is like it")
    held = ledger.model_copy(update={"capped": (*ledger.capped, now)})
    reason = f"{len(ledger.opened)} incidents were opened in the last hour, and {limits.incidents_per_hour} may be"
    return Capped(incident=incident.model_copy(update={"state": State.CAPPED}), ledger=held, reason=reason)


def closed_by(success: Run, known: Sequence[Incident]) -> tuple[Incident, ...]:
    """The incidents that a completed run closes, as they are then."""
    return tuple(
        incident.model_copy(update={"state": State.CLOSED, "closed_at": success.ended_at, "closed_by": success.run_id})
        for incident in known
        if incident.active and incident.job == success.job and _all_over(success, incident)
    )


def _all_over(success: Run, incident: Incident) -> bool:
    own = [failed for failed in incident.failures if failed.job == incident.job]
    return all(shows_over(success, failed) for failed in own)


def _is_one(failed: FailedRun, incident: Incident) -> bool:
    """Whether a failure is of the incident's flow, and its job the same, a part of it or the whole of it."""
    if not any(failed.shares_flow(other) for other in incident.failures):
        return False
    origin = incident.origin
    if failed.job == origin.job:
        return failed.map_index == origin.map_index
    return failed.job in origin.within or origin.job in failed.within


def _new(failure: Failure, tries: Sequence[Failure], project: str, now: datetime) -> Incident:
    """An incident of a failure, or of the latest of its parts that failed, with all tries of that."""
    failed = failure.run
    mine = [other for other in tries if other.run.shares_flow(failed)]
    parts = [other for other in mine if failed.job in other.run.within and other.run.at <= failed.at]
    first = max(parts, key=lambda part: (part.run.at, part.run.id), default=failure)
    said = "\x1f".join((project, failed.job, failed.run_id, failed.at.isoformat()))
    incident = Incident(
        incident_id=f"incident-{hashlib.sha256(said.encode()).hexdigest()[:24]}",
        state=State.OPEN,
        job=first.run.job,
        flow=first.run.flow,
        signature=first.run.signature,
        error_message=first.error_message,
        failures=(first.run,),
        count=1,
        tries=1,
        opened_at=now,
    )
    earlier = [o for o in mine if o.run.job == first.run.job and o.run.map_index == first.run.map_index]
    for other in (*earlier, failure):
        incident = _with(incident, other)
    return incident


def _with(incident: Incident, failure: Failure) -> Incident:
    """The incident with one failure more; the same whatever the order they come in."""
    failed = failure.run
    hits = any(failed.shares_flow(other) for other in incident.failures)
    every = {other.id: other for other in (*incident.failures, failed)}
    kept = tuple(sorted(every.values(), key=lambda other: (other.at, other.id))[-KEPT_FAILURES:])
    origin = _origin(kept)
    tries = [other for other in kept if other.job == origin.job and other.shares_flow(origin)]
    numbers = [other.try_number for other in tries if other.try_number is not None]
    return incident.model_copy(
        update={
            "job": origin.job,
            "flow": origin.flow,
            "signature": origin.signature,
            "error_message": failure.error_message if origin.id == failed.id else incident.error_message,
            "failures": kept,
            "count": incident.count + (not hits),
            "tries": max(numbers, default=len(tries)),
        }
    )


def _origin(failures: Sequence[FailedRun]) -> FailedRun:
    return max(failures, key=lambda failed: (len(failed.within), failed.at, failed.id))


def _open(incident: Incident, ledger: Ledger, now: datetime, reason: str) -> Open:
    opened = incident.model_copy(update={"state": State.OPEN, "opened_at": now})
    return Open(incident=opened, ledger=ledger.model_copy(update={"opened": (*ledger.opened, now)}), reason=reason)

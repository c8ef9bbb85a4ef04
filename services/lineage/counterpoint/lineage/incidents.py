"""Incidents as records of the store `incidents`: one for each thing that is broken, and one `Ledger` per project.

Every change of which incidents stand rewrites the ledger, so that of two at once one conflicts and decides anew.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from counterpoint.lineage.failures import FailedRun
from counterpoint.proto.incident_settings import IncidentSettings, in_force
from counterpoint.proto.messages import Shape, Time
from counterpoint.recall.names import job

LEDGER_ID = "ledger"
KEPT_FAILURES = 50
KEPT_AFFECTED = 200
_NEVER, _ALWAYS = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


class State(StrEnum):
    """State of an incident.

    `waiting`: another try or a part's failure is to come. `open`: a task was asked for. `capped`: none was, the project
    had too many this hour. `closed`: see `Ending`.
    """

    WAITING = "waiting"
    OPEN = "open"
    CAPPED = "capped"
    CLOSED = "closed"


class Ending(StrEnum):
    """Reason for the end: a later run completed, the task ended, or its failures belong to another incident."""

    RUN = "run"
    TASK = "task"
    MERGED = "merged"


class Earlier(Shape):
    """The flows that failed the same way before an incident: how many, and when the first did."""

    count: int
    first_at: Time


class Join(Shape):
    """The word of a person that an incident is a part of another: the record of it in `links`, and the other."""

    link: str
    into: str


class Incident(Shape):
    """One thing that is broken, and all failures that are it.

    `job`, `flow`, `signature` and `error_message` are of its origin, the latest failure of the job itself. `failures`
    are the latest `KEPT_FAILURES` of it and of the wholes that repeat it, `affected` those that follow from it. `count`
    is the number of flows it has hit, `tries` how often the latest of them tried. `target` is what its task was last
    pointed at. `closed_by` is a run, a task or an incident, by `ending`. `previous` is the last incident of the job,
    `earlier` what was alike before. `live` are the facts that the task shows as they are now. `joins` say what it was
    declared a part of, `parts` are the incidents that joins lead here from.
    """

    incident_id: str
    state: State
    job: str
    flow: str
    signature: str
    error_message: str = ""
    failures: tuple[FailedRun, ...]
    affected: tuple[FailedRun, ...] = ()
    affected_count: int = 0
    flows: tuple[str, ...] = ()
    count: int = 1
    tries: int = 1
    first_at: Time
    last_at: Time
    opened_at: Time
    targets: tuple[str, ...] = ()
    closed_at: Time | None = None
    closed_by: str | None = None
    ending: Ending | None = None
    previous: str | None = None
    earlier: Earlier | None = None
    live: dict[str, Any] = {}
    joins: tuple[Join, ...] = ()
    parts: tuple[str, ...] = ()

    @property
    def origin(self) -> FailedRun:
        """The failure that says what is broken."""
        return max(self.roots, key=lambda failed: (failed.told, not failed.statement, failed.at, failed.run_id))

    @property
    def roots(self) -> tuple[FailedRun, ...]:
        """The failures of the job itself."""
        return tuple(failed for failed in self.failures if failed.job == self.job)

    @property
    def active(self) -> bool:
        """Whether failures still join it."""
        return self.state is not State.CLOSED

    @property
    def asked(self) -> bool:
        """Whether a task was asked for."""
        return bool(self.targets)

    @property
    def members(self) -> dict[str, FailedRun]:
        """All its failures by run, those that follow from it too."""
        return {failed.run_id: failed for failed in (*self.affected, *self.failures)}


class Span(Shape):
    """The time in which an incident may have others follow from it; without `until` it stands."""

    incident_id: str
    job: str
    within: tuple[str, ...] = ()
    first: Time
    until: Time | None = None


class Ledger(Shape):
    """The incidents of a project in short: when they were opened or capped within the last hour, and their spans."""

    opened: tuple[Time, ...] = ()
    capped: tuple[Time, ...] = ()
    spans: tuple[Span, ...] = ()

    def since(self, moment: datetime) -> "Ledger":
        """The ledger without openings and caps that are older."""
        opened = tuple(at for at in self.opened if at > moment)
        capped = tuple(at for at in self.capped if at > moment)
        return self.model_copy(update={"opened": opened, "capped": capped})

    def around(self, failed: FailedRun) -> tuple[Span, ...]:
        """The spans that a failure may follow from, that may follow from it, or that have in common what follows."""
        return tuple(span for span in self.spans if span.until is None or span.until > failed.at)


class Limits(Shape):
    """Incidents that a project may open in an hour; the flows that must fail in a row until one is opened, by job where
    `open_after_of` names it; how long a failed try is waited on that has retries left, and how
    long the failure of a whole waits for that of a part (never longer than the former)."""

    incidents_per_hour: int
    retry_grace_s: float
    part_grace_s: float = 30.0
    open_after: int = 1
    open_after_of: dict[str, int] = {}

    def under(self, settings: Iterable[IncidentSettings]) -> "Limits":
        """The limits with the settings of the project and of its jobs."""
        known = [one for one in settings if one.open_after is not None]
        project = in_force(one for one in known if one.job is None)
        of = {job(one.job.namespace, one.job.name).ref: one.open_after or 1 for one in known if one.job}
        return self.model_copy(update={"open_after": project.open_after, "open_after_of": of})

    def is_enough(self, incident: Incident) -> bool:
        """Whether an incident has hit as many flows as its job takes to be asked for."""
        return incident.count >= self.open_after_of.get(incident.job, self.open_after)

    def grace(self, failed: FailedRun) -> timedelta:
        """Return the time that this failure waits."""
        only_whole = min(self.part_grace_s, self.retry_grace_s)
        return timedelta(seconds=self.retry_grace_s if failed.retries_left else only_whole)


def standing_units(failures: Iterable[FailedRun]) -> tuple[FailedRun, ...]:
    """The latest failure of each job and flow that is not over, earliest first; wholes only where they repeat no part.

    A part that was over before the whole failed is not repeated by it.
    """
    known = list(failures)
    over: dict[tuple[str, str], datetime] = {}
    for one in known:
        for whole in one.within:
            over[whole, one.flow] = max(over.get((whole, one.flow), _NEVER), one.over_at or _ALWAYS)
    standing = [one for one in known if one.over_at is None and over.get((one.job, one.flow), _NEVER) <= one.at]
    return tuple({(one.job, one.map_index, one.flow): one for one in standing}.values())

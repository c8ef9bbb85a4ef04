"""Records of the store `incidents`: one incident for each cause, and one ledger per project.

Every change of the active incidents rewrites the ledger, so that two changes at once conflict and one is retried.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from counterpoint.graph.names import job
from counterpoint.lineage.incidents.failures import FailedRun
from counterpoint.proto.incident_settings import IncidentSettings, effective_settings
from counterpoint.proto.messages import Shape, Time

LEDGER_ID = "ledger"
FAILURES_LIMIT = 50
AFFECTED_LIMIT = 200
FAILURES_BYTES = 100_000
"""Maximum size of either; what names and URLs of the usual length take is less."""
_LARGEST_FAILURE_BYTES = 10_000
_NEVER, _ALWAYS = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


class IncidentState(StrEnum):
    """State of an incident.

    `waiting`: a retry or the failure of a part is expected. `open`: a task was submitted. `capped`: no task was
    submitted, the project had too many this hour. `closed`: see `IncidentEnding`.
    """

    WAITING = "waiting"
    OPEN = "open"
    CAPPED = "capped"
    CLOSED = "closed"


class IncidentEnding(StrEnum):
    """Reason of closing: a later run completed, the task ended, or another incident has its failures."""

    RUN = "run"
    TASK = "task"
    MERGED = "merged"


class EarlierFailures(Shape):
    """Earlier flows with the same failure: their number, and the time of the first."""

    count: int
    first_at: Time


class IncidentJoin(Shape):
    """A join that a person declared: the id in store `links`, and the incident that this one is part of."""

    link: str
    into: str


class IncidentRecord(Shape):
    """One cause of failures, with all its failures.

    `job`, `flow`, `signature` and `error_message` are those of its origin, the latest failure of the job itself.
    `failures` are the latest `FAILURES_LIMIT` of the job and of parent jobs that repeat them, `affected` those that
    follow from it. `count` is the number of flows it has hit, `tries` the number of tries of the latest. `targets` are
    the jobs and errors its task was set to. `closed_by` is a run, a task or an incident, by `ending`. `previous` is the
    last incident of the job, `earlier` counts equal failures before it. `live` are the current facts of its task.
    `joins` are the incidents it was declared a part of, `parts` the incidents declared parts of it.
    """

    incident_id: str
    state: IncidentState
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
    ending: IncidentEnding | None = None
    previous: str | None = None
    earlier: EarlierFailures | None = None
    live: dict[str, Any] = {}
    joins: tuple[IncidentJoin, ...] = ()
    parts: tuple[str, ...] = ()

    @property
    def origin(self) -> FailedRun:
        """The failure that represents the incident."""
        return max(self.roots, key=lambda failed: (failed.told, not failed.statement, failed.at, failed.run_id))

    @property
    def roots(self) -> tuple[FailedRun, ...]:
        """Failures of the job itself."""
        return tuple(failed for failed in self.failures if failed.job == self.job)

    @property
    def is_full(self) -> bool:
        """Whether older failures may have been dropped."""
        size = sum(len(failed.model_dump_json()) for failed in self.failures)
        return len(self.failures) >= FAILURES_LIMIT or size > FAILURES_BYTES - _LARGEST_FAILURE_BYTES

    @property
    def active(self) -> bool:
        """Whether new failures can be added to it."""
        return self.state is not IncidentState.CLOSED

    @property
    def has_task(self) -> bool:
        """Whether a task was submitted."""
        return bool(self.targets)

    @property
    def members(self) -> dict[str, FailedRun]:
        """All its failures by run, including affected ones."""
        return {failed.run_id: failed for failed in (*self.affected, *self.failures)}


class IncidentSpan(Shape):
    """Time in which other failures may follow from an incident; without `until` it is active."""

    incident_id: str
    job: str
    within: tuple[str, ...] = ()
    first: Time
    until: Time | None = None


class IncidentLedger(Shape):
    """Summary of a project's incidents: times of openings and caps of the last hour, and spans."""

    opened: tuple[Time, ...] = ()
    capped: tuple[Time, ...] = ()
    spans: tuple[IncidentSpan, ...] = ()

    def since(self, moment: datetime) -> "IncidentLedger":
        """Drop openings and caps that are older."""
        opened = tuple(at for at in self.opened if at > moment)
        capped = tuple(at for at in self.capped if at > moment)
        return self.model_copy(update={"opened": opened, "capped": capped})

    def around(self, failed: FailedRun) -> tuple[IncidentSpan, ...]:
        """Spans of incidents that may be related to a failure."""
        return tuple(span for span in self.spans if span.until is None or span.until > failed.at)


class IncidentLimits(Shape):
    """Limits of incidents in a project.

    `incidents_per_hour` may be opened. `open_after` is the number of flows that must fail before one is, by job in
    `open_after_of`. `retry_grace_s` is the grace period of a try with retries left, `part_grace_s` that of a parent
    job's failure, at most the former.
    """

    incidents_per_hour: int
    retry_grace_s: float
    part_grace_s: float = 30.0
    open_after: int = 1
    open_after_of: dict[str, int] = {}

    def under(self, settings: Iterable[IncidentSettings]) -> "IncidentLimits":
        """Apply the settings of the project and its jobs."""
        rows = [each for each in settings if each.open_after is not None]
        project = effective_settings(each for each in rows if each.job is None)
        by_job = {job(each.job.namespace, each.job.name).ref: each.open_after or 1 for each in rows if each.job}
        return self.model_copy(update={"open_after": project.open_after, "open_after_of": by_job})

    def is_enough(self, incident: IncidentRecord) -> bool:
        """Whether an incident has hit enough flows to submit its task."""
        return incident.count >= self.open_after_of.get(incident.job, self.open_after)

    def grace(self, failed: FailedRun) -> timedelta:
        """Grace period of a failure."""
        only_whole = min(self.part_grace_s, self.retry_grace_s)
        return timedelta(seconds=self.retry_grace_s if failed.retries_left else only_whole)


def unresolved_failures(failures: Iterable[FailedRun]) -> tuple[FailedRun, ...]:
    """Return the latest unresolved failure of each job and flow, earliest first, without repetitions by parent jobs.

    A part that was resolved before its parent failed is not repeated by it.
    """
    rows = list(failures)
    resolved_at: dict[tuple[str, str], datetime] = {}
    for each in rows:
        for whole in each.within:
            resolved_at[whole, each.flow] = max(resolved_at.get((whole, each.flow), _NEVER), each.over_at or _ALWAYS)
    unresolved = [
        each for each in rows if each.over_at is None and resolved_at.get((each.job, each.flow), _NEVER) <= each.at
    ]
    return tuple({(each.job, each.map_index, each.flow): each for each in unresolved}.values())

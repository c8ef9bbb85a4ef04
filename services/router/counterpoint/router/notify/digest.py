"""Digests: one message at fixed times of the day about all incidents of a project that changed since the last. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, time, timedelta
from typing import Annotated, Self
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, model_validator

from counterpoint.proto.ids import derived_id
from counterpoint.proto.messages import ProjectName, Shape, Time
from counterpoint.proto.tasks import Priority
from counterpoint.router.notify.quiet_hours import check_zone
from counterpoint.router.notify.summary import OVER, SEVERITIES, IncidentSummary, Status, severity_level

INCIDENTS_LIMIT = 20
"""Incidents that a digest lists; it counts all."""
_COUNTED: Mapping[Status, str] = {
    "approval": "waiting for an approval",
    "escalated": "waiting for you",
    "proposed": "with a proposal",
    "working": "being worked on",
    "failed": "not resolved",
    "resolved": "resolved",
    "cancelled": "cancelled",
}
"""States in the order in which they are told."""
_ORDER = tuple(_COUNTED)


class DigestTimes(BaseModel):
    """The times of the day in `zone` at which a digest is sent.

    `unless` is the lowest severity that is also told at once, by default every one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: Annotated[tuple[time, ...], Field(min_length=1, max_length=24)]
    zone: str = "UTC"
    unless: Priority = "low"

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        check_zone(self.zone)
        return self

    def next_after(self, now: datetime) -> datetime:
        """Return the time of the next digest."""
        return min(each for each in self._around(now) if each > now)

    def last_before(self, at: datetime) -> datetime:
        """Return the time of the digest before `at`."""
        return max(each for each in self._around(at) if each < at)

    def tells_at_once(self, severity: str) -> bool:
        """Whether an incident of a severity is also told when it changes."""
        return severity_level(severity) >= severity_level(self.unless)

    def _around(self, now: datetime) -> list[datetime]:
        zone = ZoneInfo(self.zone)
        today = now.astimezone(zone).date()
        days = (today + timedelta(days=offset) for offset in (-2, -1, 0, 1, 2))
        return [datetime.combine(day, at, zone).astimezone(now.tzinfo) for day in days for at in self.at]


class IncidentDigest(Shape):
    """The content of a digest: the incidents that changed since `since`, and how many there are by state.

    Those that wait for a person come first, then by severity. `more` are not listed; `is_cut`: there are further ones
    that were not read.
    """

    project: ProjectName
    since: Time
    until: Time
    counts: dict[str, int]
    incidents: tuple[IncidentSummary, ...]
    more: int = 0
    is_cut: bool = False

    @property
    def headline(self) -> str:
        """The counts in words."""
        count = sum(self.counts.values())
        known = [f"{self.counts[status]} {words}" for status, words in _COUNTED.items() if status in self.counts]
        least = "at least " if self.is_cut else ""
        plural = "" if count == 1 else "s"
        return f"{self.project}: {least}{count} incident{plural} since {self.since:%d %b %H:%M} UTC: {', '.join(known)}"

    @property
    def lines(self) -> tuple[str, ...]:
        """One line per incident, and how many more there are."""
        listed = tuple(_line(incident) for incident in self.incidents)
        return (*listed, f"and {self.more} more") if self.more else listed


def digest_id(receiver: str, project: str, at: datetime) -> str:
    """Return the id of the delivery of a digest."""
    return derived_id("digest", receiver, project, int(at.timestamp()))


def digest_of(
    project: str, since: datetime, until: datetime, incidents: Iterable[IncidentSummary], *, is_cut: bool = False
) -> IncidentDigest | None:
    """Return the digest of incidents, None without any."""
    ordered = sorted(incidents, key=_urgency)
    if not ordered:
        return None
    return IncidentDigest(
        project=project,
        since=since,
        until=until,
        counts=dict(Counter(incident.status for incident in ordered)),
        incidents=tuple(ordered[:INCIDENTS_LIMIT]),
        more=max(0, len(ordered) - INCIDENTS_LIMIT),
        is_cut=is_cut,
    )


def _urgency(incident: IncidentSummary) -> tuple[int, int, datetime]:
    return _ORDER.index(incident.status), len(SEVERITIES) - severity_level(incident.severity), incident.opened_at


def _line(incident: IncidentSummary) -> str:
    known: Sequence[str | None] = (
        incident.severity if incident.status not in OVER else None,
        incident.owner,
        incident.recurrence,
        f"{incident.affected_count} more failed" if incident.affected_count else None,
        incident.task_id,
    )
    return f"{incident.headline} ({', '.join(each for each in known if each)})"

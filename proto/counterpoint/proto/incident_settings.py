"""Settings of incidents by project or job: when they open and close, and whether anything is proposed."""

import hashlib
from collections.abc import Iterable
from typing import ClassVar

from pydantic import Field

from counterpoint.proto.messages import Message, ProjectName, Shape, Time
from counterpoint.proto.tasks import JobRef

STORE = "incident_settings"
PROJECT_ID = "project"
SHADOW_REPORT_S = 7 * 24 * 3600
"""Seconds from the start of a shadow to its report."""


class IncidentSettings(Shape):
    """The settings of a project, or of one `job`. A job inherits what it omits; a project has the defaults.

    `open_after`: consecutive failed flows before an incident submits a task. `quiet_s`: seconds without a failure after
    which it closes. `shadow`: incidents are recognised and recorded, and nothing is proposed.
    """

    job: JobRef | None = None
    open_after: int | None = Field(default=None, ge=1, le=50)
    quiet_s: float | None = Field(default=None, ge=60, le=366 * 24 * 3600)
    shadow: bool | None = None


class StoredIncidentSettings(IncidentSettings):
    """A record of the store `incident_settings`. `shadow_since` is the start of the shadow."""

    project: ProjectName
    shadow_since: Time | None = None
    by: str
    at: Time


class ShadowDue(Message):
    """The report of a shadow is due, a week after its start. Ignored once the shadow has ended or restarted.

    `settings_id` is the record of the settings, `since` the start of the shadow.
    """

    TYPE: ClassVar[str] = "counterpoint.shadow.due.v1"

    settings_id: str
    since: Time


class EffectiveIncidentSettings(Shape):
    """The settings that apply to one failure."""

    open_after: int = 1
    quiet_s: float | None = None
    shadow: bool = False


def settings_id(job: JobRef | None) -> str:
    """Return the record id of a job's settings, or of the project's."""
    if job is None:
        return PROJECT_ID
    identity = f"{job.namespace}\x1f{job.name}"
    return f"job-{hashlib.sha256(identity.encode()).hexdigest()[:32]}"


def shadow_timer(record_id: str) -> str:
    """Return the id of the timer of a shadow's report."""
    return f"shadow.{record_id}"


def ids_for(job: JobRef | None) -> tuple[str, ...]:
    """Return the record ids that apply to a failure of `job`, the project's first."""
    return (PROJECT_ID, settings_id(job)) if job else (PROJECT_ID,)


def effective_settings(known: Iterable[IncidentSettings]) -> EffectiveIncidentSettings:
    """Return the merged settings; later ones take precedence."""
    merged: dict[str, object] = {}
    for one in known:
        fields = EffectiveIncidentSettings.model_fields
        merged |= {name: value for name in fields if (value := getattr(one, name)) is not None}
    return EffectiveIncidentSettings.model_validate(merged)

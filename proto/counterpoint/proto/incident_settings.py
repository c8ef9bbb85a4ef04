"""Settings of incidents, by project or by job: when one opens and closes, and whether anything is proposed for it."""

import hashlib
from collections.abc import Iterable
from typing import ClassVar

from pydantic import Field

from counterpoint.proto.messages import Message, ProjectName, Shape, Time
from counterpoint.proto.tasks import JobRef

STORE = "incident_settings"
PROJECT_ID = "project"
SHADOW_REPORT_S = 7 * 24 * 3600
"""Time after which a shadow has seen enough to report."""


class IncidentSettings(Shape):
    """The settings of a project, or of one `job`; what is left out is inherited by a job, and the default otherwise.

    `open_after`: flows that must fail in a row until an incident asks for a task. `quiet_s`: seconds without a failure
    after which it closes by itself. `shadow`: it is recognised and recorded, and nothing is proposed.
    """

    job: JobRef | None = None
    open_after: int | None = Field(default=None, ge=1, le=50)
    quiet_s: float | None = Field(default=None, ge=60, le=366 * 24 * 3600)
    shadow: bool | None = None


class StoredIncidentSettings(IncidentSettings):
    """The record of the store `incident_settings`. `shadow_since`: when the shadow began."""

    project: ProjectName
    shadow_since: Time | None = None
    by: str
    at: Time


class ShadowDue(Message):
    """A week of a shadow is over, and its report is due. It says nothing once the shadow has ended or begun anew.

    `settings_id` is the record of the settings, `since` the beginning of the shadow.
    """

    TYPE: ClassVar[str] = "counterpoint.shadow.due.v1"

    settings_id: str
    since: Time


class InForce(Shape):
    """The settings that hold for one failure."""

    open_after: int = 1
    quiet_s: float | None = None
    shadow: bool = False


def settings_id(job: JobRef | None) -> str:
    """The id of the record of a project's settings, or of a job's."""
    if job is None:
        return PROJECT_ID
    said = f"{job.namespace}\x1f{job.name}"
    return f"job-{hashlib.sha256(said.encode()).hexdigest()[:32]}"


def shadow_timer(record_id: str) -> str:
    """The name by which the timer of a shadow's report is cancelled."""
    return f"shadow.{record_id}"


def ids_for(job: JobRef | None) -> tuple[str, ...]:
    """The ids of the records that hold for a failure of `job`, the project's first."""
    return (PROJECT_ID, settings_id(job)) if job else (PROJECT_ID,)


def in_force(known: Iterable[IncidentSettings]) -> InForce:
    """The settings that hold where the later ones of `known` go before the earlier."""
    held: dict[str, object] = {}
    for one in known:
        held |= {name: value for name in InForce.model_fields if (value := getattr(one, name)) is not None}
    return InForce.model_validate(held)

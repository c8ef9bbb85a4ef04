"""Limits of what model calls may cost: of projects, agents, sessions, tasks and the organisation, by day, month or in
all."""

import hashlib
from datetime import datetime, timedelta
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from counterpoint.proto.messages import ProjectName, Shape, Time, Usd

STORE = "limits"
LIMITS_MAX = 200
"""Maximum number of limits of a project. Each call reads them all."""
ORGANISATION_STORE = "organisation_limits"
ORGANISATION_LIMITS_MAX = 50
"""Maximum number of limits of the organisation. Each commit of a call reads them all."""

LimitScope = Literal["project", "agent", "session", "task"]
LimitPeriod = Literal["day", "month", "total"]
LimitName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
"""An agent, or the id of a session or task."""


class LimitKey(Shape):
    """The key of a limit. Without a name it holds for each agent, session or task by itself. Days are UTC."""

    scope: LimitScope = "project"
    name: LimitName | None = None
    period: LimitPeriod = "total"

    @model_validator(mode="after")
    def _check_name(self) -> Self:
        if self.scope == "project" and self.name is not None:
            raise ValueError("name must be absent for the project")
        return self

    @property
    def record_id(self) -> str:
        """Return the id of the record in the store `limits`."""
        return hashed_id("limit", self.scope, self.name or "", self.period)


class SpendLimit(LimitKey):
    """A limit in US dollars, in tokens, or both. A call whose estimate exceeds what is left is refused.

    A call that exceeds a `soft_*` amount is made by a cheaper model, if there is one; a person is warned once.
    """

    usd: Usd | None = Field(default=None, ge=0)
    tokens: int | None = Field(default=None, ge=0, le=10**12)
    soft_usd: Usd | None = Field(default=None, ge=0)
    soft_tokens: int | None = Field(default=None, ge=0, le=10**12)

    @model_validator(mode="after")
    def _check_amount(self) -> Self:
        if all(each is None for each in (self.usd, self.tokens, self.soft_usd, self.soft_tokens)):
            raise ValueError("usd or tokens must be given, or a soft amount of them")
        for soft, hard, unit in ((self.soft_usd, self.usd, "usd"), (self.soft_tokens, self.tokens, "tokens")):
            if soft is not None and hard is not None and soft >= hard:
                raise ValueError(f"soft_{unit} must be less than {unit}")
        return self


class OrganisationLimitKey(Shape):
    """The key of a limit of the organisation: the name of its set of projects, none for all projects."""

    scope: Literal["organisation"] = "organisation"
    name: LimitName | None = None
    period: LimitPeriod = "total"

    @property
    def record_id(self) -> str:
        """Return the id of the record in the store `organisation_limits`."""
        return hashed_id("limit", self.scope, self.name or "", self.period)


class OrganisationLimit(OrganisationLimitKey):
    """A limit on what the calls of several projects cost together: of all, or of the named set `projects`.

    It has no soft amounts: a project's gateway would learn what other projects have used.
    """

    projects: tuple[ProjectName, ...] = Field(default=(), max_length=200)
    usd: Usd | None = Field(default=None, ge=0)
    tokens: int | None = Field(default=None, ge=0, le=10**12)

    @field_validator("projects")
    @classmethod
    def _distinct(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(set(value)))

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.usd is None and self.tokens is None:
            raise ValueError("usd or tokens must be given")
        if (self.name is None) != (not self.projects):
            raise ValueError("name and projects must be given together; without both the limit is of all projects")
        return self

    def covers(self, project: str) -> bool:
        """Whether the calls of a project count."""
        return not self.projects or project in self.projects


class StoredOrganisationLimit(OrganisationLimit):
    """A record of the store `organisation_limits`."""

    by: str
    at: Time


class StoredLimit(SpendLimit):
    """A record of the store `limits`."""

    project: ProjectName
    by: str
    at: Time


def spend_record_id(limit: LimitKey, name: str, since: datetime | None) -> str:
    """Return the id of the record in the store `spend` that counts the spending of `name` under a limit since then."""
    return hashed_id("limit", limit.record_id, name, since.isoformat() if since else "")


def hashed_id(*parts: str) -> str:
    """Return an id made of the first part and a hash of all."""
    return f"{parts[0]}-{hashlib.sha256(chr(31).join(parts).encode()).hexdigest()[:32]}"


def bounds(period: LimitPeriod, now: datetime) -> tuple[datetime | None, datetime | None]:
    """Return start and end of the period of `now`, None for a total."""
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    match period:
        case "day":
            return day, day + timedelta(days=1)
        case "month":
            start = day.replace(day=1)
            return start, (start + timedelta(days=32)).replace(day=1)
        case "total":
            return None, None

"""Delegations: a person who may decide approvals lets another person decide in their place for a time."""

from datetime import datetime, timedelta

from pydantic import Field

from counterpoint.proto.ids import derived_id
from counterpoint.proto.messages import ProjectName, Shape, Time
from counterpoint.proto.principals import Principal, Role

STORE = "delegations"
DELEGATED: Role = "approve"
"""The role that is delegated."""
LONGEST = timedelta(days=90)


class NewDelegation(Shape):
    """Let the person `to` decide approvals of the project in the place of the caller, until `until`."""

    to: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,62}$")
    until: Time


class Delegation(NewDelegation):
    """A record of the store `delegations`: a person `by` lets another one decide. `at`: when it was set."""

    project: ProjectName
    by: str
    at: Time

    @property
    def record_id(self) -> str:
        """The id of its record: there is one for each pair of persons."""
        return delegation_id(self.project, self.by, self.to)

    def holds(self, delegator: Principal | None, deputy: Principal, now: datetime) -> bool:
        """Whether it holds at `now`: while the delegator may approve in the project by a role of their own.

        It is of no use to a later principal of the same name as either.
        """
        if delegator is None or now >= self.until or not delegator.is_active(now):
            return False
        if any(each.created_at and each.created_at > self.at for each in (delegator, deputy)):
            return False
        return delegator.kind == "person" and delegator.name == self.by and delegator.may(DELEGATED, self.project)


def delegation_id(project: str, by: str, to: str) -> str:
    """Return the id of the record of a delegation."""
    return derived_id(project, STORE, by, to)


def as_deputy(principal: Principal, project: str) -> Principal:
    """Return a person with the delegated role. It holds for work in this project alone."""
    if principal.kind != "person" or not principal.may("read", project):
        return principal
    return principal.model_copy(update={"roles": (*principal.roles, DELEGATED)})

"""The query of the limits of the organisation, and its report."""

from decimal import Decimal
from typing import Literal

from counterpoint.proto.limits import StoredOrganisationLimit
from counterpoint.proto.messages import Shape, Usd


class OrganisationLimits(Shape):
    """Limits of the organisation and what was used of them; the `report` is an `OrganisationReport`.

    Readers of a project see those that cover it, with what this project has used. An administrator of all projects sees
    all limits, with what each project has used.
    """

    op: Literal["organisation_limits"] = "organisation_limits"


class ProjectUse(Shape):
    """The use of a limit by one project in the present period, reservations included."""

    project: str
    usd: Usd = Decimal(0)
    tokens: int = 0


class OrganisationLimitUse(Shape):
    """A limit of the organisation and the use of it by the projects that the reader may see.

    `reached`: all is used, or the limit has refused a call in the present period since it was set.
    """

    limit: StoredOrganisationLimit
    reached: bool
    uses: tuple[ProjectUse, ...] = ()


class OrganisationReport(Shape):
    """Limits of the organisation. `everywhere`: all limits and projects are included."""

    everywhere: bool
    limits: tuple[OrganisationLimitUse, ...] = ()

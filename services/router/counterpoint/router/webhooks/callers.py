"""Callers of webhooks: the principal of a source that signs, and the context of a request."""

from counterpoint.proto import subjects
from counterpoint.proto.errors import Denied, ErrorCode, Permanent, Problem
from counterpoint.proto.principals import Principal
from counterpoint.router.api.context import RequestContext, RouterResources
from counterpoint.router.authentication import principal_named
from counterpoint.router.webhooks.sources import WebhookSource


async def principal_of_source(resources: RouterResources, source: WebhookSource, name: str) -> Principal:
    """Return the principal for whom a source signs. Raises `Denied` if it does not exist is revoked or expired."""
    principal = await principal_named(resources.memory(subjects.DEFAULT_PROJECT, None), name)
    if principal is None:
        raise Denied(ErrorCode.PRINCIPAL, f"the principal {name} of source {source.name}, neither revoked nor expired")
    return principal


def user_named(source: WebhookSource, user: str) -> str:
    """Return the name of the principal of a user of a chat. Raises `Denied` for one that the source does not name."""
    name = source.users.get(user)
    if name is None:
        raise Denied(ErrorCode.PRINCIPAL, f"a principal for the user {user[:40]} in users of {source.name}")
    return name


def context_of(
    resources: RouterResources, principal: Principal, source: WebhookSource | None, project: str | None
) -> RequestContext:
    """Return the context in the project of the source, or in that of the request if the source has none.

    Raises `Permanent` `invalid` for a request that names another project than its source.
    """
    fixed = source.project if source else None
    if source and fixed and project and fixed != project:
        raise Permanent(ErrorCode.INVALID, (Problem(field="project", problem=f"is not that of source {source.name}"),))
    chosen = fixed or project or subjects.DEFAULT_PROJECT
    return RequestContext(resources, principal, chosen, project_in_url=True)

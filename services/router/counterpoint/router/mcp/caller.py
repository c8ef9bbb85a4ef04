"""The caller of an MCP request: the principal and project that the endpoint found in the HTTP request."""

from typing import Annotated

from fastmcp.server.dependencies import get_http_request
from pydantic import Field

from counterpoint.proto.messages import Id, ProjectName
from counterpoint.router.api.context import RequestContext
from counterpoint.router.mcp.endpoint import ALL_TOOLS, CONTEXT

Project = Annotated[
    ProjectName | None, Field(description="The project. Left out: that of the endpoint's URL, else `default`.")
]
TaskIdArgument = Annotated[Id, Field(description="The task's id.")]
WaitArgument = Annotated[
    int, Field(ge=0, le=60, description="Maximum seconds to wait until the task has ended or waits for input.")
]


def caller(project: str | None = None) -> RequestContext:
    """Return the context of the request in `project`. Raises `Permanent` `invalid` for another than the URL's."""
    context: RequestContext = get_http_request().scope[CONTEXT]
    return context.in_project_of({"project": project})


def lists_all_tools() -> bool:
    """Return whether all tools are listed: where the endpoint's URL asks for it, and at the start of the server."""
    try:
        return bool(get_http_request().scope.get(ALL_TOOLS))
    except RuntimeError:
        return True

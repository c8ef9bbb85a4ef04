"""Tokens for editors and other tools that call models through the gateway, paid by the budget of a task."""

from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import Field

from counterpoint.guard.capabilities import unverified_grant
from counterpoint.proto.commands import EDITOR_MINUTES_MAX, IssueEditorToken
from counterpoint.proto.errors import ErrorCode, Permanent, Problem, Transient
from counterpoint.proto.messages import Shape, Time
from counterpoint.router.api.body import RequestBody, json_body, reply
from counterpoint.router.api.openapi import request_body
from counterpoint.router.paging import TaskId

router = APIRouter(prefix="/v1/tasks/{task_id}", tags=["tasks"])


class NewModelToken(Shape):
    """The life of a token, in minutes."""

    minutes: int = Field(default=60, ge=1, le=EDITOR_MINUTES_MAX)


class ModelToken(Shape):
    """A token for the gateway, which has OpenAI's API at `base_url`."""

    base_url: str
    token: str
    expires_at: Time


@router.post(
    "/model-token",
    status_code=201,
    responses={201: {"model": ModelToken}},
    response_model=None,
    openapi_extra=request_body(NewModelToken),
)
async def create(task_id: TaskId, body: Annotated[RequestBody[NewModelToken], json_body(NewModelToken)]) -> Response:
    """Issue a token for a tool that calls models for a task, such as an editor. The task needs a budget, which pays.

    Needs the roles `submit` and `read`. The token ends with the task, and with the rights of the principal.
    """
    context = body.context
    context.require("submit")
    context.require("read")
    url = context.resources.settings.gateway_url
    if url is None:
        raise Permanent(ErrorCode.NO_MODEL, (Problem(field="COUNTERPOINT_GATEWAY_URL", problem="is not set"),))
    command = IssueEditorToken(task_id=task_id, minutes=body.value.minutes)
    token = (await context.memory().command(command)).token
    if token is None:
        raise Transient("memory returned no token")
    made = ModelToken(base_url=f"{url}/v1", token=token, expires_at=unverified_grant(token).expires_at)
    return reply(made, 201)

"""Replay with another model over HTTP: the calls of the model, and queries that the record has no answer to.

The sandbox of the project pays for the calls; nothing is written in the project of the task.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Response

from counterpoint.client import Gateway, Memory
from counterpoint.proto.commands import IssueReplayToken
from counterpoint.proto.errors import Denied, ErrorCode, Permanent, Problem, Transient
from counterpoint.proto.memory import TokenPurpose
from counterpoint.proto.replays import ReplayAnswers, ReplayCall, ReplayQueries, TextReply, sandbox_project
from counterpoint.router.api.body import RequestBody, json_body, reply
from counterpoint.router.api.openapi import request_body
from counterpoint.router.api.replay import ended_task
from counterpoint.router.paging import TaskId

router = APIRouter(prefix="/v1/tasks/{task_id}/replay", tags=["operate"])


@dataclass(frozen=True, slots=True)
class ReplayHolder:
    """Holder of the gateway tokens of one call of a replay."""

    memory: Memory
    task_id: str
    call: ReplayCall

    async def gateway_token(self, purpose: TokenPurpose) -> str:
        """Return a token of the sandbox for models; a replay makes no web search."""
        if purpose != "model":
            raise Denied(ErrorCode.GATEWAY, "a task; a replay has no access to web search")
        call = self.call
        paying = [self.task_id] if call.regression is None else ["regression", call.regression]
        job = hashlib.sha256(json.dumps([*paying, call.model, call.run]).encode()).hexdigest()[:32]
        command = IssueReplayToken(
            task_id=self.task_id,
            commit_id=self.call.commit_id,
            job=job,
            budget=self.call.budget,
            read=self.call.read,
        )
        answer = await self.memory.command(command)
        if answer.token is None:
            raise Transient("memory returned no token")
        return answer.token


@router.post(
    "/calls",
    responses={200: {"model": TextReply}},
    response_model=None,
    openapi_extra=request_body(ReplayCall),
)
async def call(
    task_id: TaskId, body: Annotated[RequestBody[ReplayCall], json_body(ReplayCall, large=True)]
) -> Response:
    """Call a model in place of the one that an ended task called, with its prompt as it is built again.

    Needs the roles `read` and `audit`, and `submit` in the project PROJECT-replay, which pays. An equal call is made
    and paid once. What the delivery has read must not be above the clearance of the providers.
    """
    context, wanted = body.context, body.value
    context.require("read")
    context.require("audit")
    await ended_task(context, task_id)
    url = context.resources.settings.gateway_url
    if url is None:
        raise Permanent(ErrorCode.NO_MODEL, (Problem(field="COUNTERPOINT_GATEWAY_URL", problem="is not set"),))
    messages = [message.model_dump() for message in wanted.messages]
    prompt = json.dumps([messages, wanted.max_tokens, wanted.temperature, wanted.as_json])
    gateway = Gateway(url, model=wanted.model)
    try:
        made = await gateway.generate(
            ReplayHolder(context.memory(), task_id, wanted),
            messages,
            key=f"{wanted.key} {hashlib.sha256(f'{wanted.commit_id} {prompt}'.encode()).hexdigest()[:32]}",
            deadline_s=wanted.deadline_s,
            max_tokens=wanted.max_tokens,
            temperature=wanted.temperature,
            as_json=wanted.as_json,
        )
    finally:
        await gateway.close()
    return reply(
        TextReply(
            text=made.text,
            finish=made.finish,
            sandbox=sandbox_project(context.project),
            **made.usage.model_dump(),
        )
    )


@router.post(
    "/queries",
    responses={200: {"model": ReplayAnswers}},
    response_model=None,
    openapi_extra=request_body(ReplayQueries),
)
async def query(task_id: TaskId, body: Annotated[RequestBody[ReplayQueries], json_body(ReplayQueries)]) -> Response:
    """Answer queries that a replayed delivery makes and the recorded one did not make, as of its last commit.

    Needs the roles `read` and `audit`. Searches of a past moment are by meaning alone.
    """
    context = body.context
    context.require("read")
    context.require("audit")
    await ended_task(context, task_id)
    then = [each.model_copy(update={"as_of": body.value.commit_id}) for each in body.value.queries]
    return reply(ReplayAnswers(found=await context.memory().query(*then)))

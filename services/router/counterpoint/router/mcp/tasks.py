"""The extension `io.modelcontextprotocol/tasks`: a delegated task as a task of the protocol.

A client that declares the extension gets a task in place of a wait, and then polls, answers or cancels it. The state
is that of the task in memory; nothing else is kept. Where a person has to decide, the task is `input_required`, if the
client can ask and its principal may answer; otherwise it is `completed` with what the task waits for.
"""

from collections.abc import Sequence
from typing import Any, Literal

from fastmcp.server.context import Context as McpContext
from fastmcp.server.dependencies import get_http_request
from fastmcp.server.extensions import MethodBinding, ServerExtension, ToolCallContinuation, ToolCallOutcome
from fastmcp.tools.base import ToolResult
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types import INVALID_PARAMS, CallToolRequestParams, CallToolResult, RequestParams
from mcp_types.jsonrpc import HEADER_MISMATCH, MISSING_REQUIRED_CLIENT_CAPABILITY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ConfigDict, Field

from counterpoint.client import records
from counterpoint.proto.approvals import ApprovalDecision
from counterpoint.proto.errors import CounterpointError, Denied
from counterpoint.proto.interventions import Override
from counterpoint.proto.line import Action
from counterpoint.proto.memory import List
from counterpoint.proto.tasks import Task
from counterpoint.proto.validation import parse
from counterpoint.router.api.approvals import decide_approval, read_approval
from counterpoint.router.api.body import validate
from counterpoint.router.api.context import RequestContext
from counterpoint.router.api.delegations import require_approver
from counterpoint.router.api.task_state import is_settled, watch_task
from counterpoint.router.api.tasks import cancel_task, override_task, read_task
from counterpoint.router.mcp.approvals import DECISION_FORM, question
from counterpoint.router.mcp.caller import caller
from counterpoint.router.mcp.problems import protocol_error
from counterpoint.router.mcp.task_view import as_result
from counterpoint.router.mcp.work import delegate_to_developer

EXTENSION = "io.modelcontextprotocol/tasks"
_VERSIONS = frozenset(MODERN_PROTOCOL_VERSIONS)
_POLL_MS, _TTL_MS = 1_000, 7 * 86_400_000
_APPLIED_S = 10.0
"""Maximum time that an answer waits for its effect on the task."""
_OVERRIDE, _APPROVAL = "override", "approval:"
"""Keys of the requests for input. That for an approval goes on with the hash of the text that is shown."""
_INSTRUCTION_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "instruction": {"type": "string", "title": "Instruction", "description": "What the developer has to do."},
        "reasoning": {"type": "string", "title": "Reason"},
    },
    "required": ["instruction", "reasoning"],
}

Request = ServerRequestContext[Any, Any]


class TaskCreated(BaseModel):
    """The result of a tool call that became a task."""

    model_config = ConfigDict(populate_by_name=True)

    result_type: Literal["task"] = Field("task", serialization_alias="resultType")
    task_id: str = Field(serialization_alias="taskId")
    status: str
    created_at: str = Field(serialization_alias="createdAt")
    last_updated_at: str = Field(serialization_alias="lastUpdatedAt")
    ttl_ms: int = Field(_TTL_MS, serialization_alias="ttlMs")
    poll_interval_ms: int = Field(_POLL_MS, serialization_alias="pollIntervalMs")


class TaskParams(RequestParams):
    """The task of a request."""

    task_id: str = Field(alias="taskId")


class TaskAnswers(TaskParams):
    """A task, and the answers to its requests for input."""

    input_responses: dict[str, Any] = Field(alias="inputResponses")


class DelegatedTasks(ServerExtension):
    """The extension for tasks of `delegate_to_developer`."""

    identifier = EXTENSION

    def methods(self) -> Sequence[MethodBinding]:
        """Return the methods on tasks."""
        return (
            MethodBinding("tasks/get", TaskParams, self._get, _VERSIONS),
            MethodBinding("tasks/update", TaskAnswers, self._update, _VERSIONS),
            MethodBinding("tasks/cancel", TaskParams, self._cancel, _VERSIONS),
        )

    async def intercept_tool_call(
        self, params: CallToolRequestParams, context: McpContext, call_next: ToolCallContinuation
    ) -> ToolCallOutcome:
        """Return a task in place of the wait of `delegate_to_developer`, for a client that declares the extension."""
        request = context.request_context
        declared = request is not None and request.protocol_version in _VERSIONS
        if (
            params.name != delegate_to_developer.__name__
            or params.arguments is None
            or not declared
            or context.client_extension_settings(EXTENSION) is None
        ):
            return await call_next()
        params.arguments["wait_s"] = 0
        outcome = await call_next()
        if not isinstance(outcome, ToolResult) or outcome.is_error or not isinstance(outcome.structured_content, dict):
            return outcome
        accepted = outcome.structured_content
        in_project = caller(accepted["project"])
        if not in_project.may("read"):
            return outcome
        task = await read_task(in_project, accepted["task_id"])
        return TaskCreated(task_id=f"{task.project}:{task.task_id}", status=_status(task, None), **_times(task, None))

    async def _get(self, ctx: Request, params: TaskParams) -> dict[str, Any]:
        context, task_id = self._checked(ctx, params)
        try:
            task = await read_task(context, task_id)
            newest = await context.fetch(List(store="actions", task_id=task_id, limit=1))
            requests = await _input_requests(ctx, context, task)
        except CounterpointError as error:
            raise protocol_error(error) from error
        (latest,) = records(newest.items, Action) or (None,)
        words = f"{task.state}, attempt {task.attempt}" if task.attempt else task.state
        shown: dict[str, Any] = {
            "resultType": "complete",
            "taskId": params.task_id,
            "status": _status(task, requests),
            "statusMessage": words,
            "ttlMs": _TTL_MS,
            "pollIntervalMs": _POLL_MS,
            **TaskCreated(task_id="", status="", **_times(task, latest)).model_dump(
                by_alias=True, include={"created_at", "last_updated_at"}
            ),
        }
        if requests:
            shown["inputRequests"] = requests
        elif shown["status"] == "completed":
            of_tool = as_result(task)
            result = CallToolResult(content=of_tool.content, structured_content=of_tool.structured_content)
            shown["result"] = result.model_dump(by_alias=True, mode="json", exclude_none=True)
        return shown

    async def _update(self, ctx: Request, params: TaskAnswers) -> dict[str, Any]:
        context, task_id = self._checked(ctx, params)
        try:
            before = await read_task(context, task_id)
            for key, response in params.input_responses.items():
                content = response.get("content") if isinstance(response, dict) else None
                if isinstance(content, dict) and response.get("action") == "accept":
                    await _answer(context, before, key, content)
            async for task in watch_task(context, task_id, _APPLIED_S):
                if task.version != before.version:
                    break
        except CounterpointError as error:
            raise protocol_error(error) from error
        return {"resultType": "complete"}

    async def _cancel(self, ctx: Request, params: TaskParams) -> dict[str, Any]:
        context, task_id = self._checked(ctx, params)
        try:
            context.require("submit", "override")
            await cancel_task(context, task_id, "cancelled by its MCP client")
        except CounterpointError as error:
            raise protocol_error(error) from error
        return {"resultType": "complete"}

    def _checked(self, ctx: Request, params: TaskParams) -> tuple[RequestContext, str]:
        """Return the context in the task's project, and the task's id. Raises `MCPError`."""
        if self.client_settings(ctx) is None:
            data: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
            raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, f"the client does not declare {EXTENSION}", data)
        header = get_http_request().headers.get(MCP_NAME_HEADER)
        if header is not None and decode_header_value(header) != params.task_id:
            raise MCPError(HEADER_MISMATCH, f"{MCP_NAME_HEADER} does not match taskId")
        project, colon, task_id = params.task_id.partition(":")
        if not colon:
            raise MCPError(INVALID_PARAMS, "unknown_task: taskId: is not a task that this server has made")
        try:
            return caller(project), task_id
        except CounterpointError as error:
            raise protocol_error(error) from error


def _status(task: Task, requests: dict[str, Any] | None) -> str:
    if task.state == "cancelled":
        return "cancelled"
    if not is_settled(task):
        return "working"
    return "input_required" if requests else "completed"


def _times(task: Task, latest: Action | None) -> dict[str, str]:
    at = latest.at if latest else task.submitted_at
    return {"created_at": task.submitted_at.isoformat(), "last_updated_at": at.isoformat()}


async def _input_requests(ctx: Request, context: RequestContext, task: Task) -> dict[str, Any] | None:
    """Return what a person at the client is asked, None where nobody there can answer."""
    capabilities = ctx.session.client_capabilities
    if task.state != "input_required" or capabilities is None or capabilities.elicitation is None:
        return None
    if task.waiting_for == "approval" and task.approval:
        try:
            await require_approver(context)
        except Denied:
            return None
        shown = await read_approval(context, task.approval.approval_id)
        return {f"{_APPROVAL}{shown.artifact_sha256}": _elicitation(question(shown), DECISION_FORM)}
    if task.escalation and task.escalation.to == "human" and context.may("override"):
        needs = "\n".join(f"- {need.kind}: {need.what}" for need in task.escalation.needs)
        message = f"{task.title or task.description}\n\nEscalated: {task.escalation.code}\n{needs}"
        return {_OVERRIDE: _elicitation(message, _INSTRUCTION_FORM)}
    return None


def _elicitation(message: str, form: dict[str, Any]) -> dict[str, Any]:
    params = {"mode": "form", "message": message, "requestedSchema": form}
    return {"method": "elicitation/create", "params": params}


async def _answer(context: RequestContext, task: Task, key: str, content: dict[str, Any]) -> None:
    given = {name: value for name, value in content.items() if value not in (None, "")}
    if key == _OVERRIDE:
        context.require("override")
        override = parse(Override.TYPE, {**given, "task_id": task.task_id, "confidence_override": True})
        assert isinstance(override, Override)
        await override_task(context, override)
    elif key.startswith(_APPROVAL) and task.approval:
        decision = validate(ApprovalDecision, {**given, "artifact_sha256": key.removeprefix(_APPROVAL)})
        await decide_approval(context, task.approval.approval_id, decision)

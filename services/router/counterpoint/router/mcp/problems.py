"""Problems of the HTTP API as errors of MCP: the field at fault, and what the caller does about it."""

import json
from typing import Any

import mcp_types
import structlog
from fastmcp.exceptions import FastMCPError, ValidationError
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools.base import ToolResult
from mcp import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, TextContent
from pydantic import ValidationError as ModelError

from counterpoint.proto.error_texts import error_texts
from counterpoint.proto.errors import CounterpointError, ErrorCode, Permanent, Problem
from counterpoint.proto.validation import field_problems
from counterpoint.router.problems import ProblemDetails, problem_of

log = structlog.get_logger()

META = "counterpoint/problem"
"""Key of the problem in the metadata of a tool error."""


class Problems(Middleware):
    """Answers errors of a tool with an error result, and those of resources and prompts with protocol errors."""

    async def on_call_tool(
        self,
        context: MiddlewareContext[mcp_types.CallToolRequestParams],
        call_next: CallNext[mcp_types.CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        """Call a tool."""
        try:
            return await call_next(context)
        except FastMCPError as error:
            problem = _problem(error, context.message.name, context.message.arguments)
        return ToolResult(
            content=[TextContent(type="text", text=as_text(problem))],
            meta={META: json.loads(problem.model_dump_json(exclude_none=True))},
            is_error=True,
        )

    async def on_read_resource(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        """Read a resource."""
        return await _or_protocol_error(context, call_next, str(context.message.uri), {"uri": str(context.message.uri)})

    async def on_get_prompt(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        """Render a prompt."""
        return await _or_protocol_error(context, call_next, context.message.name, {})


def as_text(problem: ProblemDetails) -> str:
    """Return a problem for a language model: its code, the fields at fault, and what to do."""
    parts = [f"{each.field}: {each.problem}" for each in problem.errors]
    if problem.detail:
        parts.append(problem.detail)
    lines = [f"{problem.code}: {'; '.join(parts) or problem.title}"]
    if text := error_texts().get(problem.code):
        lines.append(text.action)
    return "\n".join(lines)


def protocol_error(error: CounterpointError, data: dict[str, Any] | None = None) -> MCPError:
    """Return an error of memory or of the API as an error of the protocol."""
    problem, _ = problem_of(error)
    code = INTERNAL_ERROR if problem.status >= 500 else INVALID_PARAMS
    body = json.loads(problem.model_dump_json(exclude_none=True))
    return MCPError(code=code, message=as_text(problem), data={**(data or {}), "problem": body})


async def _or_protocol_error(
    context: MiddlewareContext[Any], call_next: CallNext[Any, Any], name: str, data: dict[str, Any]
) -> Any:
    try:
        return await call_next(context)
    except CounterpointError as error:
        raise protocol_error(error, data) from error
    except FastMCPError as error:
        problem = _problem(error, name, None)
        code = INTERNAL_ERROR if problem.status >= 500 else INVALID_PARAMS
        body = json.loads(problem.model_dump_json(exclude_none=True))
        raise MCPError(code=code, message=as_text(problem), data={**data, "problem": body}) from error


def _problem(error: FastMCPError, name: str, arguments: dict[str, Any] | None) -> ProblemDetails:
    """Return the problem behind an error of fastmcp. An unexpected exception is logged, and its text kept back."""
    cause = error.__cause__
    if isinstance(error, ValidationError) and isinstance(cause, ModelError):
        return problem_of(Permanent(ErrorCode.INVALID, field_problems(arguments or {}, cause)))[0]
    if isinstance(error, ValidationError):
        return problem_of(Permanent(ErrorCode.INVALID, (Problem(field="arguments", problem=str(error)),)))[0]
    if isinstance(cause, CounterpointError):
        problem, _ = problem_of(cause)
        if problem.status >= 500:
            log.warning("mcp.failed", name=name, code=problem.code, reason=str(cause))
        return problem
    log.error("mcp.failed", name=name, code=ErrorCode.INTERNAL, exc_info=cause or error)
    return problem_of(CounterpointError())[0]

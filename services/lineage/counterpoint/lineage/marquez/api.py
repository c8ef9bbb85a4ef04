"""OpenLineage by HTTP, and the part of Marquez's read API that producers and people use."""

import hashlib
import json
import math
from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from counterpoint.client import Memory, record, retry_on_conflict
from counterpoint.lineage.incidents.incident import IncidentLimits
from counterpoint.lineage.marquez import queries
from counterpoint.lineage.openlineage.parser import parse_event
from counterpoint.lineage.project_locks import ProjectLocks
from counterpoint.proto import subjects, validation
from counterpoint.proto.errors import Conflict, CounterpointError, Denied, ErrorCode, Permanent, Problem, Transient
from counterpoint.proto.lineage import LineageEvent
from counterpoint.proto.messages import MESSAGE_LIMIT_BYTES, utc_now
from counterpoint.proto.principals import Principal, Role

MemoryFor = Callable[[str, str | None], Memory]
"""Memory for a project on behalf of a principal; without a name, on behalf of the service."""

_DEPTH, _DEPTH_LIMIT, _PAGE_LIMIT, _OFFSET_LIMIT = 20, 100, 100, 10_000
_DECISIONS = 5
_STATUS: dict[str, int] = {ErrorCode.MALFORMED: 400, ErrorCode.NOT_FOUND: 404, ErrorCode.TOO_LARGE: 413}
"""HTTP status of `Permanent` codes other than 422."""


def application(memory: MemoryFor, limits: IncidentLimits, locks: ProjectLocks | None = None) -> Starlette:
    """Build the HTTP API; every request needs the bearer token of a principal."""
    locks = locks or ProjectLocks()

    async def post(request: Request) -> Response:
        principal, project = await _authenticate(request, memory, "report")
        message = validation.parse(LineageEvent.TYPE, _json(await _body(request)))
        assert isinstance(message, LineageEvent)
        event = parse_event(message.event)

        async def accept() -> None:
            bound_memory = memory(project, principal.name)
            commit = await locks.commit_for(await bound_memory.redact_names(event), bound_memory, limits)
            if (commit.writes or commit.messages) and not bound_memory.finished:
                await bound_memory.step(commit)

        try:
            await retry_on_conflict(accept, _DECISIONS)
        except Conflict as overtaken:
            raise Transient("too many events of the same job at once") from overtaken
        return JSONResponse({"ignored": [problem.field for problem in event.ignored]}, HTTPStatus.CREATED)

    async def lineage(request: Request) -> Response:
        depth = _number(request, "depth", _DEPTH, _DEPTH_LIMIT)
        node_id = _required(request, "nodeId")
        memory = await authorised_memory(request)
        return JSONResponse(await queries.graph(memory, await memory.redact_names(node_id), depth))

    async def namespaces(request: Request) -> Response:
        return JSONResponse(await queries.namespaces(await authorised_memory(request)))

    async def jobs(request: Request) -> Response:
        # Namespaces hold escaped slashes, so the path is split before it is unescaped.
        raw: bytes = request.scope["raw_path"]
        match [unquote(part) for part in raw.decode("ascii").split("/")[4:]]:
            case [namespace, "jobs"]:
                limit = _number(request, "limit", _PAGE_LIMIT, _PAGE_LIMIT)
                offset = _number(request, "offset", 0, _OFFSET_LIMIT)
                memory = await authorised_memory(request)
                return JSONResponse(await queries.jobs(memory, await memory.redact_names(namespace), limit, offset))
            case [namespace, "jobs", name]:
                memory = await authorised_memory(request)
                return JSONResponse(await queries.job(memory, *await memory.redact_names((namespace, name))))
            case _:
                raise HTTPException(HTTPStatus.NOT_FOUND)

    async def authorised_memory(request: Request) -> Memory:
        principal, project = await _authenticate(request, memory, "read")
        return memory(project, principal.name)

    return Starlette(
        routes=[
            Route("/api/v1/lineage", post, methods=["POST"]),
            Route("/api/v1/lineage", lineage),
            Route("/api/v1/namespaces", namespaces),
            Route("/api/v1/namespaces/{rest:path}", jobs),
        ],
        exception_handlers={CounterpointError: _refused, HTTPException: _by_status},
    )


async def _authenticate(request: Request, memory: MemoryFor, role: Role) -> tuple[Principal, str]:
    """Return the principal and project of a request: the project parameter, else the principal's only project."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Denied(ErrorCode.UNAUTHENTICATED, "the bearer token of a principal")
    key = hashlib.sha256(token.strip().encode()).hexdigest()
    item = await memory(subjects.DEFAULT_PROJECT, None).get("principals", key)
    principal = record(item, Principal) if item else None
    if principal is None or not principal.is_active(utc_now()):
        raise Denied(ErrorCode.UNAUTHENTICATED, "the token of a principal that is neither revoked nor expired")
    project = request.query_params.get("project") or _project(principal)
    if project is None or not subjects.PROJECT_PATTERN.fullmatch(project):
        problem = "is not a valid project name" if project else "is required: this principal has several projects"
        raise Permanent(ErrorCode.INVALID, (Problem(field="project", problem=problem),))
    if not principal.may(role, project):
        raise Denied(ErrorCode.ROLE, f"the role {role} in project {project}")
    return principal, project


def _project(principal: Principal) -> str | None:
    match principal.projects:
        case (one,) if one != "*":
            return one
        case projects if "*" in projects:
            return subjects.DEFAULT_PROJECT
        case _:
            return None


async def _body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MESSAGE_LIMIT_BYTES:
            raise Permanent(
                ErrorCode.TOO_LARGE, (Problem(field="body", problem=f"is larger than {MESSAGE_LIMIT_BYTES} bytes"),)
            )
    return body


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Permanent(
            ErrorCode.MALFORMED, (Problem(field="body", problem=f"is not valid JSON: {error}"[:200]),)
        ) from error


def _required(request: Request, name: str) -> str:
    value = request.query_params.get(name)
    if value is None:
        raise Permanent(ErrorCode.INVALID, (Problem(field=name, problem="is required"),))
    return value


def _number(request: Request, name: str, default: int, limit: int) -> int:
    value = request.query_params.get(name)
    if value is None:
        return default
    if not value.isdecimal() or len(value) > len(str(limit)) or int(value) > limit:
        raise Permanent(ErrorCode.INVALID, (Problem(field=name, problem=f"must be a whole number up to {limit}"),))
    return int(value)


async def _refused(_: Request, error: Exception) -> Response:
    match error:
        case Denied(rule=ErrorCode.UNAUTHENTICATED | ErrorCode.PRINCIPAL):
            return _problem(
                401, ErrorCode.UNAUTHENTICATED, f"needs {error.needed}", headers={"WWW-Authenticate": "Bearer"}
            )
        case Denied():
            return _problem(403, error.rule, f"needs {error.needed}")
        case Permanent():
            return _problem(_STATUS.get(error.code, 422), error.code, errors=error.problems)
        case Transient(retry_after_s=after_s):
            after = str(max(1, math.ceil(after_s or 1)))
            return _problem(503, ErrorCode.UNAVAILABLE, "try again later", headers={"Retry-After": after})
        case _:
            return _problem(500, ErrorCode.INTERNAL)


async def _by_status(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _problem(error.status_code, HTTPStatus(error.status_code).phrase.lower().replace(" ", "_"))


def _problem(
    status: int,
    code: str,
    detail: str | None = None,
    errors: tuple[Problem, ...] = (),
    headers: dict[str, str] | None = None,
) -> Response:
    """Return an RFC 9457 problem: a stable `code`, and `errors` with each invalid field."""
    body: dict[str, Any] = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "code": code}
    if detail:
        body["detail"] = detail
    if errors:
        body["errors"] = [problem.model_dump() for problem in errors]
    return JSONResponse(body, status, headers, "application/problem+json")

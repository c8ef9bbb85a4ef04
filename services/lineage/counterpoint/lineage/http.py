"""OpenLineage by HTTP, and the part of Marquez's read API that producers and people use (rows F1, F2)."""

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

from counterpoint.lineage import reader
from counterpoint.lineage.incidents import Limits
from counterpoint.lineage.reading import parse
from counterpoint.lineage.turns import Turns
from counterpoint.proto import subjects, validation
from counterpoint.proto.errors import Conflict, CounterpointError, Denied, Permanent, Problem, Transient
from counterpoint.proto.lineage import LineageEvent
from counterpoint.proto.messages import MESSAGE_LIMIT_BYTES
from counterpoint.proto.principals import Principal, Role
from counterpoint.recall import Memory, record

MemoryFor = Callable[[str, str | None], Memory]
"""From a project and a principal's name to memory on its behalf; without a name, on the service's own."""

_DEPTH, _DEPTH_LIMIT, _PAGE_LIMIT, _OFFSET_LIMIT = 20, 100, 100, 10_000
_DECISIONS = 5
_STATUS = {"malformed": 400, "not_found": 404, "too_large": 413}
"""Codes of `Permanent` that are not 422."""


def application(memory: MemoryFor, limits: Limits, turns: Turns | None = None) -> Starlette:
    """The HTTP API; every request needs the bearer token of a principal, of which its project follows."""
    turns = turns or Turns()

    async def post(request: Request) -> Response:
        principal, project = await _asker(request, memory, "report")
        message = validation.parse(LineageEvent.TYPE, _json(await _body(request)))
        assert isinstance(message, LineageEvent)
        event = parse(message.event)
        for left in reversed(range(_DECISIONS)):
            asked = memory(project, principal.name)
            try:
                commit = await turns.take(await asked.harmless(event), asked, limits)
                if (commit.writes or commit.messages) and not asked.finished:
                    await asked.step(commit)
                break
            except Conflict as overtaken:
                if not left:
                    raise Transient("too many events of the same job at once") from overtaken
        return JSONResponse({"ignored": [problem.field for problem in event.ignored]}, HTTPStatus.CREATED)

    async def lineage(request: Request) -> Response:
        depth = _number(request, "depth", _DEPTH, _DEPTH_LIMIT)
        node_id = request.query_params.get("nodeId")
        if node_id is None:
            raise Permanent("invalid", (Problem(field="nodeId", problem="is required"),))
        memory = await reading(request)
        return JSONResponse(await reader.graph(memory, await memory.harmless(node_id), depth))

    async def namespaces(request: Request) -> Response:
        return JSONResponse(await reader.namespaces(await reading(request)))

    async def jobs(request: Request) -> Response:
        # Namespaces hold escaped slashes, so the path is split before it is unescaped.
        raw: bytes = request.scope["raw_path"]
        match [unquote(part) for part in raw.decode("ascii").split("/")[4:]]:
            case [namespace, "jobs"]:
                limit = _number(request, "limit", _PAGE_LIMIT, _PAGE_LIMIT)
                offset = _number(request, "offset", 0, _OFFSET_LIMIT)
                memory = await reading(request)
                return JSONResponse(await reader.jobs(memory, await memory.harmless(namespace), limit, offset))
            case [namespace, "jobs", name]:
                memory = await reading(request)
                return JSONResponse(await reader.job(memory, *await memory.harmless((namespace, name))))
            case _:
                raise HTTPException(HTTPStatus.NOT_FOUND)

    async def reading(request: Request) -> Memory:
        principal, project = await _asker(request, memory, "read")
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


async def _asker(request: Request, memory: MemoryFor, role: Role) -> tuple[Principal, str]:
    """Who asks, and the project they ask in: the one they name, else the only one they have."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Denied("unauthenticated", "the bearer token of a principal")
    key = hashlib.sha256(token.strip().encode()).hexdigest()
    item = await memory(subjects.DEFAULT_PROJECT, None).get("principals", key)
    principal = record(item, Principal) if item else None
    if principal is None or principal.revoked_at is not None:
        raise Denied("unauthenticated", "the token of a principal that is not revoked")
    project = request.query_params.get("project") or _project(principal)
    if project is None or not subjects.PROJECT_PATTERN.fullmatch(project):
        problem = "is no project name" if project else "has to name one of the several projects of this principal"
        raise Permanent("invalid", (Problem(field="project", problem=problem),))
    if not principal.may(role, project):
        raise Denied("role", f"the role {role} in project {project}")
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
            raise Permanent("too_large", (Problem(field="body", problem=f"is more than {MESSAGE_LIMIT_BYTES} bytes"),))
    return body


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Permanent("malformed", (Problem(field="body", problem=f"is no JSON: {error}"[:200]),)) from error


def _number(request: Request, name: str, default: int, limit: int) -> int:
    said = request.query_params.get(name)
    if said is None:
        return default
    if not said.isdecimal() or len(said) > len(str(limit)) or int(said) > limit:
        raise Permanent("invalid", (Problem(field=name, problem=f"must be a whole number up to {limit}"),))
    return int(said)


async def _refused(_: Request, error: Exception) -> Response:
    match error:
        case Denied(rule="unauthenticated" | "principal"):
            return _problem(401, "unauthenticated", f"needs {error.needed}", headers={"WWW-Authenticate": "Bearer"})
        case Denied():
            return _problem(403, error.rule, f"needs {error.needed}")
        case Permanent():
            return _problem(_STATUS.get(error.code, 422), error.code, errors=error.problems)
        case Transient(retry_after_s=after_s):
            after = str(max(1, math.ceil(after_s or 1)))
            return _problem(503, "unavailable", "try again later", headers={"Retry-After": after})
        case _:
            return _problem(500, "internal")


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
    """An RFC 9457 problem: `code` to decide by, `errors` with each field at fault."""
    body: dict[str, Any] = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "code": code}
    if detail:
        body["detail"] = detail
    if errors:
        body["errors"] = [problem.model_dump() for problem in errors]
    return JSONResponse(body, status, headers, "application/problem+json")

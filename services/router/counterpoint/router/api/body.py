"""Request bodies as a FastAPI dependency, and JSON replies."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fastapi import Depends, Request, Response
from pydantic import BaseModel, ValidationError

from counterpoint.guard.names import printable_paths
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.messages import MESSAGE_LIMIT_BYTES, Message, Shape
from counterpoint.proto.principals import Role
from counterpoint.proto.validation import field_problems, parse, unknown_fields
from counterpoint.router.api.context import Context, RequestContext

S = TypeVar("S", bound=Shape)
B = TypeVar("B", bound=BaseModel)
NO_NUL_PATTERN = r"^[^\x00]*$"
"""Pattern of texts that PostgreSQL can store."""


@dataclass(frozen=True)
class RequestBody(Generic[S]):
    """A validated body. `context` is the request in the project of the body; `ignored` lists its unknown fields."""

    value: S
    context: RequestContext
    ignored: tuple[str, ...]
    content: Any


@dataclass(frozen=True)
class BodyReader(Generic[S]):
    """Dependency that reads a JSON body, checks the caller's roles and validates the body as `model`.

    The caller needs one of `roles`; without roles the endpoint checks them. `large` allows the size of documents.
    `project_field`: a top-level `project` selects the project of the request.
    """

    model: type[S]
    roles: tuple[Role, ...] = ()
    large: bool = False
    project_field: bool = True

    async def __call__(self, request: Request, context: Context) -> RequestBody[S]:
        """Read the body. Raises `Permanent` `too_large`, `malformed` or `invalid`, and `Denied`."""
        limit_bytes = context.resources.settings.documents_limit_bytes if self.large else MESSAGE_LIMIT_BYTES
        content = parsed(await raw_body(request, limit_bytes))
        if self.project_field:
            context = context.in_project_of(content)
        if self.roles:
            context.require(*self.roles)
        value = self._value(content, request.path_params)
        return RequestBody(value, context, self._ignored(content), content)

    def _value(self, content: Any, path: dict[str, Any]) -> S:
        if issubclass(self.model, Message):
            return _message(self.model, content, {name: path[name] for name in path if name in self.model.model_fields})
        return validate(self.model, content)

    def _ignored(self, content: Any) -> tuple[str, ...]:
        return ignored_fields(self.model, content, project_field=self.project_field)


def json_body(model: type[Shape], *roles: Role, large: bool = False, project_field: bool = True) -> Any:
    """Return the dependency of an endpoint that takes a body. See `BodyReader`."""
    return Depends(BodyReader(model, roles, large, project_field))


def ignored_fields(model: type[Shape], content: Any, *, project_field: bool = True) -> tuple[str, ...]:
    """Return the dotted paths of unknown fields, without those that look like secrets."""
    if not isinstance(content, dict):
        return ()
    return printable_paths(path for path in unknown_fields(model, content) if path != "project" or not project_field)


def reply(value: BaseModel, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a value as a JSON response without absent fields."""
    return Response(value.model_dump_json(exclude_none=True), status, headers, "application/json")


def item_json(value: BaseModel, **extra: Any) -> dict[str, Any]:
    """Return a value as an item of a page."""
    return {**value.model_dump(mode="json", exclude_none=True), **extra}


def batches(values: Sequence[B], limit_bytes: int) -> Iterator[tuple[B, ...]]:
    """Split values into batches of at most `limit_bytes` of JSON, in order. A larger value is a batch of its own."""
    batch: list[B] = []
    size = 0
    for value in values:
        value_bytes = len(value.model_dump_json(exclude_none=True).encode())
        if batch and size + value_bytes > limit_bytes:
            yield tuple(batch)
            batch, size = [], 0
        batch.append(value)
        size += value_bytes
    if batch:
        yield tuple(batch)


async def raw_body(request: Request, limit_bytes: int) -> bytes:
    """Read the raw body. Raises `Permanent` `too_large` before the rest of a large one is read."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit_bytes:
        raise _too_large(limit_bytes)
    raw = bytearray()
    async for part in request.stream():
        raw += part
        if len(raw) > limit_bytes:
            raise _too_large(limit_bytes)
    return bytes(raw)


def parsed(content: bytes) -> Any:
    """Return a body as JSON; an empty body is an empty object. Raises `Permanent` `malformed`."""
    if not content:
        return {}
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        problem = Problem(field="body", problem=f"is not valid JSON: {error}"[:200])
        raise Permanent(ErrorCode.MALFORMED, (problem,)) from error


def _message(model: type[S], content: Any, path: dict[str, Any]) -> S:
    """Validate a message whose missing fields are in the path."""
    for name, value in path.items():
        if isinstance(content, dict) and content.get(name, value) != value:
            raise Permanent(ErrorCode.INVALID, (Problem(field=name, problem="differs from the one in the path"),))
    assert issubclass(model, Message)
    message = parse(model.TYPE, {**content, **path} if isinstance(content, dict) else content)
    assert isinstance(message, model)
    return message


def validate(model: type[S], content: Any) -> S:
    """Return JSON as a value of `model`. Raises `Permanent` `invalid`."""
    try:
        return model.model_validate_json(json.dumps(content), strict=True)
    except ValidationError as error:
        raise Permanent(ErrorCode.INVALID, field_problems(content, error)) from error


def _too_large(limit_bytes: int) -> Permanent:
    return Permanent(ErrorCode.TOO_LARGE, (Problem(field="body", problem=f"is larger than {limit_bytes // 1024} KiB"),))

"""Bodies: what a request holds, within bounds and with every fault named; and what a reply holds."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ValidationError

from counterpoint.guard.names import kept_fields
from counterpoint.proto.errors import Permanent, Problem
from counterpoint.proto.messages import MESSAGE_LIMIT_BYTES, Message, Shape
from counterpoint.proto.validation import faults, parse, unknown_fields

S = TypeVar("S", bound=BaseModel)
M = TypeVar("M", bound=Message)
PLAIN = r"^[^\x00]*$"
"""The pattern of a text that memory can look for."""


class Page(Shape, Generic[S]):
    """Some of a list. `next_cursor` leads to the rest; null at the end."""

    items: tuple[S, ...]
    next_cursor: str | None


async def read_json(request: Request, limit_bytes: int = MESSAGE_LIMIT_BYTES) -> Any:
    """The body as JSON; nothing is an empty object. Raises `Permanent` `too_large` or `malformed`."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit_bytes:
        raise _too_large(limit_bytes)
    raw = bytearray()
    async for part in request.stream():
        raw += part
        if len(raw) > limit_bytes:
            raise _too_large(limit_bytes)
    if not raw:
        return {}
    try:
        return json.loads(bytes(raw))
    except (ValueError, RecursionError) as error:
        raise Permanent("malformed", (Problem(field="body", problem=f"is no JSON: {error}"[:200]),)) from error


def message_of(model: type[M], body: Any, **known: Any) -> M:
    """The message of a body, with what the path says of it. Raises `Permanent` `invalid`, naming each field."""
    for name, value in known.items():
        if isinstance(body, dict) and body.get(name, value) != value:
            raise Permanent("invalid", (Problem(field=name, problem="is another one than in the path"),))
    message = parse(model.TYPE, {**body, **known} if isinstance(body, dict) else body)
    assert isinstance(message, model)
    return message


def value_of(model: type[S], body: Any) -> S:
    """The value of a body that is no message. Raises `Permanent` `invalid`, naming each field."""
    try:
        return model.model_validate_json(json.dumps(body), strict=True)
    except ValidationError as error:
        raise Permanent("invalid", faults(body, error)) from error


def ignored(model: type[Shape], body: Any) -> tuple[str, ...]:
    """The dotted paths of what a body holds and nobody reads, as far as they are harmless. `project` at its top is
    always read."""
    if not isinstance(body, dict):
        return ()
    return kept_fields(path for path in unknown_fields(model, body) if path != "project")


def reply(value: BaseModel, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A value as the reply; what is absent is left out."""
    return Response(value.model_dump_json(exclude_none=True), status, headers, "application/json")


def page(items: Iterable[dict[str, Any]], next_cursor: int | None) -> Response:
    """A page of a list as the reply."""
    return JSONResponse({"items": list(items), "next_cursor": None if next_cursor is None else str(next_cursor)})


def shown(value: BaseModel, **more: Any) -> dict[str, Any]:
    """A value as an item of a page."""
    return {**value.model_dump(mode="json", exclude_none=True), **more}


def portions(values: Sequence[S], limit_bytes: int) -> Iterator[tuple[S, ...]]:
    """The values in order, as many together as fit into so many bytes of JSON; one that is larger goes alone."""
    portion: list[S] = []
    size = 0
    for value in values:
        more = len(value.model_dump_json(exclude_none=True).encode())
        if portion and size + more > limit_bytes:
            yield tuple(portion)
            portion, size = [], 0
        portion.append(value)
        size += more
    if portion:
        yield tuple(portion)


def _too_large(limit_bytes: int) -> Permanent:
    return Permanent("too_large", (Problem(field="body", problem=f"is larger than {limit_bytes // 1024} KiB"),))

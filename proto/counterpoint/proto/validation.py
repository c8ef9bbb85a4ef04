"""Validation of a parsed JSON body as a message, reporting every invalid field."""

import json
import math
import types
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from counterpoint.proto import (  # noqa: F401  (they fill the register)
    approvals,
    attempts,
    decisions,
    incident_settings,
    interventions,
    issues,
    memory,
    notifications,
    sessions,
)
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.lineage import LineageEvent
from counterpoint.proto.messages import Id, Message, ProjectName, Shape

DEPTH_LIMIT = 32
"""Maximum nesting of objects and lists, including the body itself."""

NUMBER_LIMIT_BITS = 1024
"""Maximum size of an integer, the range of a double."""

PROBLEMS_LIMIT = 50
"""Maximum number of problems or ignored fields reported for one body."""

NAME_LIMIT = 200
"""Maximum length of a reported field path."""

OPAQUE: frozenset[str] = frozenset({LineageEvent.TYPE})
"""Types whose body is defined by another standard: it is accepted whole, without unknown fields."""

_MISSING = frozenset({"missing", "missing_argument", "missing_keyword_only_argument"})
"""Types of the error that a field, or an argument of a function, is missing."""

_PATTERNS = {
    r"\S": "must not be empty",
    r"^[^\x00]*$": "must not contain a NUL character",
    get_args(Id)[1].pattern: "must be 1 to 64 letters, digits, `_` or `-`",
    get_args(ProjectName)[1].pattern: "must be 1 to 63 lower-case letters, digits or `-`, not starting with `-`",
    r"^\*$": "must be `*`",
    r"^\d{1,18}$": "must be the `next_cursor` of a page",
    r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,62}$": "must be 1 to 63 letters, digits or `._@-`, the first a letter or digit",
}


def parse(message_type: str, body: Any) -> Message:
    """Return the message of a parsed JSON body. Types are strict: `"3"` is not a number and `1` not a boolean.

    Raises `Permanent("invalid")` with one problem per field at fault; `body` and `type` stand for the whole.
    """
    model = Message.register.get(message_type)
    if model is None:
        raise Permanent(
            ErrorCode.INVALID, (Problem(field="type", problem=f"unknown message type {message_type[:NAME_LIMIT]}"),)
        )
    if not isinstance(body, dict):
        raise Permanent(ErrorCode.INVALID, (Problem(field="body", problem="must be a JSON object"),))
    if unstorable := tuple(islice(_unstorable(body, ()), PROBLEMS_LIMIT)):
        raise Permanent(ErrorCode.INVALID, unstorable)
    try:
        return model.model_validate_json(json.dumps(body), strict=True)
    except ValidationError as error:
        raise Permanent(ErrorCode.INVALID, field_problems(body, error)) from error


def check_submission(message: Message, *, project: str, received_at: datetime) -> tuple[Problem, ...]:
    """Return the problems of a submission with its place and time: another project, or a past deadline."""
    problems = []
    named = getattr(message, "project", None)
    if named is not None and named != project:
        problems.append(Problem(field="project", problem=f"is not the project it was sent to, {project}"))
    deadline = getattr(message, "deadline", None)
    if deadline is not None and deadline <= received_at:
        problems.append(Problem(field="deadline", problem="has passed"))
    return tuple(problems)


def ignored_fields(message_type: str, body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the dotted paths of a body's fields that its model does not have, such as misspelt ones."""
    return () if message_type in OPAQUE else unknown_fields(Message.register[message_type], body)


def unknown_fields(shape: type[Shape], body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the dotted paths of unknown fields of a body that is not a message."""
    return tuple(_shown(path) for path in islice(_unknown(shape, body, ()), PROBLEMS_LIMIT))


Path = tuple[str | int, ...]


def _shown(path: Path) -> str:
    """Format `("systems", 3)` as `systems[3]`, and the empty path as `body`."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return text.removeprefix(".")[:NAME_LIMIT] or "body"


def _unstorable(value: Any, path: Path) -> Iterator[Problem]:
    """Yield problems of values that PostgreSQL's jsonb cannot store, or that are nested too deeply."""
    match value:
        case str():
            if flaw := _text_flaw(value):
                yield Problem(field=_shown(path), problem=flaw)
        case float() if not math.isfinite(value):
            yield Problem(field=_shown(path), problem="must be a finite number")
        case int() if value.bit_length() > NUMBER_LIMIT_BITS:
            yield Problem(field=_shown(path), problem="is a number outside of the supported range")
        case dict() | list() if len(path) >= DEPTH_LIMIT:
            yield Problem(field=_shown(path), problem=f"is nested more than {DEPTH_LIMIT} deep")
        case dict():
            for key, inner in value.items():
                if flaw := _text_flaw(key):
                    yield Problem(field=_shown((*path, json.dumps(key)[1:-1])), problem=f"its name {flaw}")
                else:
                    yield from _unstorable(inner, (*path, key))
        case list():
            for index, inner in enumerate(value):
                yield from _unstorable(inner, (*path, index))


def _text_flaw(text: str) -> str | None:
    if "\0" in text:
        return "must not contain the character U+0000"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "must not contain an unpaired surrogate"
    return None


def field_problems(body: Any, error: ValidationError) -> tuple[Problem, ...]:
    """Return one problem per field; the problems of a field's alternatives are joined."""
    found: dict[str, list[str]] = {}
    for each in error.errors(include_url=False, include_input=False):
        field = _shown(_path(body, each))
        if each["type"] == "too_short" and any(below.startswith(f"{field}[") for below in found):
            continue  # too short only because its invalid items are missing
        texts = found.setdefault(field, [])
        if (text := problem_text(each)) not in texts:
            texts.append(text)
    return tuple(
        Problem(field=field, problem=", or ".join(texts)) for field, texts in islice(found.items(), PROBLEMS_LIMIT)
    )


def _path(body: Any, error: ErrorDetails) -> Path:
    """Return the path of an error within the body, without the names of union members."""
    path: Path = ()
    here = body
    for key in error["loc"]:
        if isinstance(here, dict) and key in here:
            here = here[str(key)]
        elif isinstance(here, list) and isinstance(key, int) and key < len(here):
            here = here[key]
        elif error["type"] not in _MISSING or key != error["loc"][-1]:
            continue
        path = (*path, key)
    return path


def problem_text(error: ErrorDetails) -> str:
    """Return the problem of a value in words for its sender."""
    limits = error.get("ctx", {})
    match error["type"]:
        case missing if missing in _MISSING:
            return "is required"
        case "unexpected_keyword_argument":
            return "is no parameter"
        case "value_error":
            return str(limits["error"])
        case "literal_error" | "enum":
            return f"must be {limits['expected']}"
        case "string_type":
            return "must be text"
        case "string_too_short" | "too_short" if limits["min_length"] == 1:
            return "must not be empty"
        case "string_too_short":
            return f"must have at least {limits['min_length']} characters"
        case "string_too_long":
            return f"must have at most {limits['max_length']} characters"
        case "too_short":
            return f"must have at least {limits['min_length']} items"
        case "too_long":
            return f"must have at most {limits['max_length']} items"
        case "string_pattern_mismatch":
            return _PATTERNS.get(limits["pattern"], f"must match {limits['pattern']}")
        case "int_type" | "int_parsing" | "int_from_float":
            return "must be a whole number"
        case "float_type" | "float_parsing":
            return "must be a number"
        case "bool_type" | "bool_parsing":
            return "must be true or false"
        case "greater_than_equal":
            return f"must be at least {limits['ge']}"
        case "less_than_equal":
            return f"must be at most {limits['le']}"
        case "model_type" | "dict_type":
            return "must be an object"
        case "tuple_type" | "list_type":
            return "must be a list"
        case kind if kind.startswith(("datetime", "timezone")):
            return "must be a time with its zone, such as 2026-11-20T17:30:00Z"
        case kind if kind.startswith("decimal") or kind == "finite_number":
            return 'must be an amount, such as "1.50"'
        case _:
            return error["msg"]


def _unknown(annotation: Any, value: Any, path: Path) -> Iterator[Path]:
    """Yield the paths below `value` that `annotation` does not have."""
    origin, arms = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from _unknown(arms[0], value, path)
    elif origin in (Union, types.UnionType):
        per_arm = [list(_unknown(arm, value, path)) for arm in arms if _holds_fields(arm)]
        yield from min(per_arm, key=len, default=[])
    elif origin is tuple and isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _unknown(arms[0], inner, (*path, index))
    elif origin is dict and isinstance(value, dict):
        for key, inner in value.items():
            yield from _unknown(arms[1], inner, (*path, key))
    elif isinstance(annotation, type) and issubclass(annotation, Shape) and isinstance(value, Mapping):
        for key, inner in value.items():
            known = annotation.model_fields.get(key)
            if known is None:
                yield (*path, key)
            else:
                yield from _unknown(known.annotation, inner, (*path, key))


def _holds_fields(annotation: Any) -> bool:
    """Whether a value of this type may have named fields."""
    is_shape = isinstance(annotation, type) and issubclass(annotation, Shape)
    return is_shape or get_origin(annotation) in (tuple, dict, Annotated)

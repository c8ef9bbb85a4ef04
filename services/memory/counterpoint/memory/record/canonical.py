"""Canonical text of a JSON value, the input of its hash."""

import json
import re
from typing import Any

from counterpoint.proto.errors import ErrorCode, Permanent, Problem

NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
"""A NUL in JSON, and not an escaped backslash before `u0000` in a text."""


def canonical(value: Any) -> str:
    """Return JSON with sorted keys and no spaces, numbers as jsonb returns them: equal values have equal text.

    Raises `Permanent` for a number that is not finite.
    """
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise Permanent(
            ErrorCode.INVALID, (Problem(field="body", problem="contains a number that is not finite"),)
        ) from error
    if "e+" in text or "-0.0" in text:
        plain = json.loads(text, parse_float=_as_stored)
        return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text


def _as_stored(number: str) -> float | int:
    """Return a number as jsonb does: a float beyond 2**53 is an integer, and there is no negative zero."""
    value = float(number)
    return int(value) if "e+" in repr(value) else value or 0.0

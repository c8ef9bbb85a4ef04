"""Canonical text of a JSON value, the input of its hash."""

import json
import re
from typing import Any

from counterpoint.proto.errors import ErrorCode, Permanent, Problem

NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
"""A NUL in JSON, and not an escaped backslash before `u0000` in a text."""
_OTHER_AS_STORED = re.compile(r"\de\+\d|-0\.0(?!\d)")
"""A number that jsonb returns otherwise. A small negative one, such as -0.01, it returns as it is."""
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical(value: Any) -> str:
    """Return JSON with sorted keys and no spaces, numbers as jsonb returns them: equal values have equal text.

    Raises `Permanent` for a number that is not finite.
    """
    try:
        text = _ENCODER.encode(value)
    except ValueError as error:
        raise Permanent(
            ErrorCode.INVALID, (Problem(field="body", problem="contains a number that is not finite"),)
        ) from error
    if ("e+" in text or "-0.0" in text) and _OTHER_AS_STORED.search(text) is not None:
        return _ENCODER.encode(json.loads(text, parse_float=_as_stored))
    return text


def _as_stored(number: str) -> float | int:
    """Return a number as jsonb does: a float beyond 2**53 is an integer, and there is no negative zero."""
    value = float(number)
    return int(value) if "e+" in repr(value) else value or 0.0

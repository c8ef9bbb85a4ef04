"""Digests of the parts of a page, by which an edit by a person is noticed. Pure."""

import hashlib
import json
from typing import Any

from pydantic import BaseModel


def digest(part: BaseModel, *, without: frozenset[str] = frozenset()) -> str:
    """Return the digest of a part. Spaces at the ends of lines, and line ends of Windows, make no difference."""
    body = _plain(part.model_dump(mode="json", exclude_none=True, exclude=set(without)))
    content = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return "\n".join(line.rstrip() for line in value.splitlines()).strip()
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items() if each not in ([], "")}
    return [_plain(each) for each in value] if isinstance(value, list) else value

"""Serialization of tasks as results of `tools/call`, which the SDK of MCP can read but not yet write.

It validates every result of `tools/call` against the shapes of the core protocol and so strips a task of all its
fields. To be removed when a server can declare further shapes, as a client can.
"""

from collections.abc import Mapping
from functools import wraps
from typing import Any

from mcp_types import methods


def allow_task_results() -> None:
    """Let a result with `resultType` `task` pass as it is. A second call changes nothing."""
    original = methods.serialize_server_result
    if getattr(original, "allows_task_results", False):
        return

    @wraps(original)
    def serialize(method: str, version: str, data: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        if method == "tools/call" and data.get("resultType") == "task":
            return dict(data)
        return original(method, version, data, **options)

    serialize.allows_task_results = True  # type: ignore[attr-defined]
    methods.serialize_server_result = serialize

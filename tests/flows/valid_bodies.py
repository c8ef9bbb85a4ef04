"""Bodies that routes accept, made of the smallest ones of their schemas, and the records that they name."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx

from counterpoint.proto.messages import utc_now

ASIDE = "aside"
"""Project of the requests that undo something."""
_DEPUTY = "deputy"
_ERASED_TASKS = 10
_ITEMS: dict[str, dict[str, Any]] = {
    "POST /v1/documents": {"documents": {"text": "Orders are kept for ten days."}},
    "POST /v1/attempts": {"incidents": {"description": "The load of the orders failed."}},
}
"""Fields that each item of a list needs besides."""
_FIELDS: dict[str, Callable[[int], dict[str, Any]]] = {
    "PUT /v1/limits": lambda turn: {"usd": "5"},
    "PUT /v1/limits/organisation": lambda turn: {"usd": "5"},
    "PUT /v1/delegations": lambda turn: {"to": _DEPUTY, "until": (utc_now() + timedelta(days=30)).isoformat()},
    "POST /v1/links": lambda turn: {"relation": "same", "tasks": ["x1", "x2"]},
    "POST /v1/revocations": lambda turn: {"revocation_id": f"{turn:0128x}"},
    "POST /v1/cypher": lambda turn: {"query": "RETURN 1"},
    "POST /v1/erasures": lambda turn: {"scope": "task", "what": f"e{turn}"},
}
"""Fields in place of those of the schema, for each request of a route in turn."""

ACTS = frozenset((*_ITEMS, *_FIELDS))


async def prepare(api: httpx.AsyncClient, project: str) -> None:
    """Create what the bodies name, besides the tasks x1 and x2."""
    deputy = {"name": _DEPUTY, "kind": "person", "projects": [project], "roles": ["read", "approve"]}
    (await api.post("/v1/principals", json=deputy)).raise_for_status()
    for turn in range(_ERASED_TASKS):
        task = {"kind": "question", "description": "How long?", "task_id": f"e{turn}", "project": ASIDE}
        (await api.post("/v1/tasks", json=task)).raise_for_status()


def valid(route: str, turn: int, value: Any, smallest: Any) -> Any:
    """Return a body with valid fields where it is like the smallest one of its schema."""
    if not isinstance(value, dict):
        return value
    fields = _FIELDS.get(route, lambda turn: {})(turn)
    value = value | {name: field for name, field in fields.items() if value.get(name) == smallest.get(name)}
    for name, lacking in _ITEMS.get(route, {}).items():
        if isinstance(value.get(name), list):
            value[name] = [{**lacking, **each} if isinstance(each, dict) else each for each in value[name]]
    return value

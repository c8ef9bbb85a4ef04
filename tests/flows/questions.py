"""Questions to a running house: documents it knows, a question to its end, and what the developer did about it."""

from collections.abc import Mapping
from typing import Any

import httpx


async def ask(http: httpx.AsyncClient, project: str, text: str, **more: Any) -> dict[str, Any]:
    """A question, to where it ends or waits."""
    body = {"kind": "question", "description": text, "project": project, **more}
    task_id = (await http.post("/v1/tasks", json=body)).raise_for_status().json()["task_id"]
    return await settled(http, project, task_id)


async def settled(http: httpx.AsyncClient, project: str, task_id: str) -> dict[str, Any]:
    """A task when it has ended or waits."""
    while True:
        shown = await http.get(f"/v1/tasks/{task_id}", params={"project": project, "wait": "30"})
        task: dict[str, Any] = shown.raise_for_status().json()
        if task["state"] not in ("submitted", "working"):
            return task


async def ingest_documents(http: httpx.AsyncClient, project: str, documents: Mapping[str, str]) -> None:
    """Put documents into memory."""
    body = {"documents": [{"source": name, "text": text} for name, text in documents.items()], "project": project}
    (await http.post("/v1/documents", json=body)).raise_for_status()


async def developer_steps(http: httpx.AsyncClient, project: str, task_id: str) -> tuple[list[Any], list[Any]]:
    """Actions and decisions of the developer, in order."""
    said = (await http.get(f"/v1/tasks/{task_id}/line", params={"project": project})).raise_for_status().json()
    actions, decisions = (
        [each for each in said[name] if each["agent"] == "developer"] for name in ("items", "decisions")
    )
    return actions, decisions


async def line(http: httpx.AsyncClient, project: str, task_id: str) -> tuple[list[str], list[str]]:
    """Kinds of those actions, and types of those decisions."""
    actions, decisions = await developer_steps(http, project, task_id)
    return [each["kind"] for each in actions], [each["decision_type"] for each in decisions]

"""Senders of webhooks: their bodies, signatures and requests."""

import json
from pathlib import Path
from typing import Any

import httpx
from agents.router_house import PROJECT
from ui.http_front import RunningFront

SECRET = "the-secret-of-a-source"
ALERT = {
    "status": "firing",
    "labels": {"alertname": "LoadFailed", "severity": "critical", "job_namespace": "prod", "job_name": "load"},
    "annotations": {"summary": "load failed", "description": "could not resolve ldap.internal"},
    "startsAt": "2026-03-02T02:59:00Z",
    "fingerprint": "f00d",
    "generatorURL": "https://prometheus.example.com/g",
}
ISSUE = {
    "action": "opened",
    "issue": {"number": 7, "title": "The import fails", "body": "It says timed out", "html_url": "https://git.example.com/o/r/issues/7"},
    "repository": {"html_url": "https://git.example.com/o/r"},
}  # fmt: skip
RUN = {
    "action": "completed",
    "workflow_run": {"id": 9, "name": "tests", "conclusion": "failure", "html_url": "https://git.example.com/o/r/runs/9"},
    "repository": {"html_url": "https://git.example.com/o/r"},
}  # fmt: skip


def alerts(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"version": "4", "alerts": list(rows)}


def configured(front: RunningFront, folder: Path, text: str) -> None:
    """Give the router a file of sources."""
    file = folder / "hooks.toml"
    file.write_text(text)
    file.chmod(0o600)
    resources = front.app.state.resources
    object.__setattr__(resources, "settings", resources.settings.model_copy(update={"hooks_file": file}))
    if hasattr(front.app.state, "webhook_sources"):
        del front.app.state.webhook_sources


async def push(front: RunningFront, source: str, body: Any, headers: dict[str, str] | None = None) -> httpx.Response:
    """A request without a token."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with httpx.AsyncClient(base_url=front.url, trust_env=False) as outside:
        return await outside.post(f"/hooks/{source}", content=content, headers=headers)


def signed_source(kind: str) -> str:
    """A source whose bodies are signed."""
    head = f'[[source]]\nname = "ours"\nkind = "{kind}"\nproject = "{PROJECT}"\n'
    return f'{head}secret = "{SECRET}"\nprincipal = "pusher"\n'

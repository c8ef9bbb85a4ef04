"""A project whose pages of the console have something to show, some of it hostile."""

import asyncio
from dataclasses import dataclass
from typing import Any

import httpx
import nats

from counterpoint.local.stack import Stack
from counterpoint.proto import subjects
from counterpoint.proto.tasks import SubmitTask

HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
SOURCE = f"ledger {HOSTILE}.md"
RIGHT = "The nightly export of the ledger is repaired by restarting the export worker and running it again.\n"
WRONG = f"The nightly export of the ledger is repaired by deleting the table ledger_export. {HOSTILE}\n"
QUESTION = "How is the nightly export of the ledger repaired?"
EXPORT, LOAD = f"ledger.export {HOSTILE}", "ledger.load"
LETTERS = 3


@dataclass(frozen=True)
class Story:
    """The project, the task that asked, and the dead letters, newest first."""

    project: str
    task_id: str
    letters: tuple[str, ...]


def run_event(
    job: str, run: str, at: str, kind: str, reads: tuple[str, ...], writes: tuple[str, ...]
) -> dict[str, Any]:
    return {
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "producer": "https://example.org/tests",
        "eventTime": at,
        "eventType": kind,
        "run": {"runId": run},
        "job": {"namespace": "ns/α", "name": job},
        "inputs": [{"namespace": "db", "name": name} for name in reads],
        "outputs": [{"namespace": "db", "name": name} for name in writes],
    }


EVENTS = (
    run_event(
        EXPORT, "01930000-0000-7000-8000-000000000001", "2026-11-20T05:00:00Z", "COMPLETE", ("book",), ("export",)
    ),
    run_event(
        LOAD, "01930000-0000-7000-8000-000000000002", "2026-11-20T06:00:00Z", "COMPLETE", ("export",), ("ledger",)
    ),
)


async def play(stack: Stack, http: httpx.AsyncClient, project: str) -> Story:
    """Fill a project."""
    in_project = {"project": project}
    for text in (RIGHT, WRONG):
        (await http.post("/v1/documents", json={"source": SOURCE, "text": text} | in_project)).raise_for_status()
    for event in EVENTS:
        sent = await http.post(f"{stack.endpoints.lineage}/api/v1/lineage", json=event, params=in_project)
        assert sent.status_code == 201, sent.text
    await _publish(stack, project, [f"{{no json {HOSTILE} {number}".encode() for number in range(LETTERS)])
    asked = await http.post(
        "/v1/tasks", json={"kind": "question", "description": QUESTION} | in_project, headers={"Prefer": "wait=60"}
    )
    assert "deleting the table" in asked.json()["result"], asked.text
    ids: list[str] = []
    async with asyncio.timeout(60):
        while len(ids) < LETTERS:
            await asyncio.sleep(0.05)
            listed = await http.get("/v1/dead-letters", params=in_project)
            ids = [each["dead_letter_id"] for each in listed.json()["items"]]
    return Story(project, asked.json()["task_id"], tuple(ids))


async def _publish(stack: Stack, project: str, bodies: list[bytes]) -> None:
    user = stack.endpoints.users["publisher"]
    prefix = user.inbox_prefix.encode()
    connected = nats.connect(stack.endpoints.nats, user=user.user, password=user.password, inbox_prefix=prefix)
    async with await connected as publisher:
        for body in bodies:
            await publisher.jetstream().publish(subjects.of(SubmitTask.TYPE, project), body)

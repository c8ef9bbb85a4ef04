"""A backup of what the services of an earlier release have stored is the same house under this one.

Releases before this one make no backups, so this one makes it of their database, while they run.
"""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from flows.test_upgrade import release
from nacl.pwhash import argon2id

from counterpoint.local.backup import sealing
from counterpoint.local.backup.create import create_file
from counterpoint.local.backup.opened import open_backup
from counterpoint.local.backup.restore import restore
from counterpoint.local.backup.verify import verify
from counterpoint.local.stack import Stack
from counterpoint.proto.errors import Permanent

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PASSPHRASE, PROJECT = "correct horse battery", "upgrade"
QUESTION = {"project": PROJECT, "kind": "question", "description": "For how many years are invoices kept?"}
FAILURE = {
    "project": PROJECT,
    "kind": "troubleshoot",
    "description": "the nightly load fails",
    "error_message": "could not resolve ldap.internal: DNS lookup timed out after 5 s (resolver 10.20.0.2:53)",
}

CHANGING = {"version", "last_action_id"}
"""Fields of a waiting task that change when it is reassessed."""


@pytest.fixture(autouse=True)
def cheap_passphrases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Derive keys as fast as Argon2 allows: nobody guesses here."""
    monkeypatch.setattr(sealing, "OPERATIONS", argon2id.OPSLIMIT_MIN)
    monkeypatch.setattr(sealing, "MEMORY_BYTES", argon2id.MEMLIMIT_MIN)


def client(stack: Stack) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {stack.endpoints.token}", "Prefer": "wait=30"}
    return httpx.AsyncClient(base_url=stack.endpoints.http, headers=headers, timeout=60, trust_env=False)


async def submitted(http: httpx.AsyncClient, task: dict[str, Any]) -> dict[str, Any]:
    response = await http.post("/v1/tasks", json=task)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


async def listed(http: httpx.AsyncClient) -> dict[str, dict[str, Any]]:
    tasks = (await http.get("/v1/tasks", params={"project": PROJECT})).json()["items"]
    return {task["task_id"]: task for task in tasks}


@pytest.mark.parametrize("number", [1, 2])
async def test_a_backup_of_an_earlier_release_continues_in_this_one(tmp_path: Path, number: int) -> None:
    file, before = tmp_path / "file", Stack(
        tmp_path / "before", http_port=0, commands=release(number, tmp_path), hold_sockets=False
    )  # fmt: skip
    await before.start()
    try:
        async with client(before) as http:
            text = "# Archive\n\nInvoices are kept for nine years, by decision of finance.\n"
            documents = {"project": PROJECT, "documents": [{"source": "archive.md", "text": text}]}
            (await http.post("/v1/documents", json=documents)).raise_for_status()
            answer, waiting = await submitted(http, QUESTION), await submitted(http, FAILURE)
            assert "nine years" in answer["result"]
            tasks = await listed(http)
            # In a thread of its own, as the command: it runs a loop.
            await asyncio.to_thread(create_file, before.data_dir, file, PASSPHRASE, "0.1.0")
    finally:
        await before.stop()

    with pytest.raises(Permanent, match="restore it by that release or a later one"):
        open_backup(file, PASSPHRASE, "0.0.9")
    backup = open_backup(file, PASSPHRASE, "0.1.0")
    assert all(report["ok"] for report in await verify(backup))
    await restore(backup, tmp_path / "after")
    after = Stack(tmp_path / "after", http_port=0)
    await after.start()
    try:
        async with client(after) as http:
            restored = await listed(http)
            assert restored.keys() == tasks.keys()
            for task_id, task in tasks.items():
                changed = {name for name, value in task.items() if restored[task_id].get(name) != value}
                assert changed <= CHANGING, (changed, task, restored[task_id])
            again = await submitted(http, QUESTION)
            assert again["result"] == answer["result"]
            report = {"attempt": waiting.get("attempt") or 1, "outcome": "succeeded", "note": "restarted the resolver"}
            path = f"/v1/tasks/{waiting['task_id']}"
            reported = await http.post(f"{path}/outcome", params={"project": PROJECT}, json=report)
            assert reported.status_code == 202, reported.text
            while (await http.get(path, params={"project": PROJECT})).json()["state"] != "completed":  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            assert (await http.get("/v1/dead-letters", params={"project": PROJECT})).json()["items"] == []
            assert (await http.get("/v1/audit/verify", params={"project": PROJECT})).json()["ok"]
    finally:
        await after.stop()

"""The audit log of a running stack: proofs and checkpoints that others can check, and refusals that are explained."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import httpx
import nats
from typer.testing import CliRunner

from counterpoint.cli.main import app
from counterpoint.local.credentials import load_credentials
from counterpoint.local.service import NATS_USERS
from counterpoint.local.stack import Stack
from counterpoint.memory.audit.note import NoteKey
from counterpoint.proto import subjects

TASK = {"kind": "question", "description": "For how many years are orders kept in the archive?", "task_id": "proved"}
SCRIPT = Path(__file__).parents[2] / "examples" / "verify" / "verify_log.py"
SECRET = "AKIA" + "IOSFODNN7EXAMPLF"


def key(stack: Stack) -> NoteKey:
    return NoteKey(load_credentials(stack.data_dir / "secrets.json", NATS_USERS).audit_key)


async def from_the_bus(stack: Stack) -> str:
    """The newest note in the stream, as the provisioner may read it."""
    secrets = load_credentials(stack.data_dir / "secrets.json", NATS_USERS)
    prefix = subjects.inbox_prefix("provisioner").encode()
    connected = nats.connect(
        stack.endpoints.nats, user="provisioner", password=secrets.nats["provisioner"], inbox_prefix=prefix
    )
    async with await connected as client:
        found = await client.jetstream().get_last_msg(subjects.CHECKPOINTS, subjects.CHECKPOINT)
    return (found.data or b"").decode()


async def test_a_task_is_proved_by_a_checkpoint_that_is_in_three_places(
    stack: Stack, http: httpx.AsyncClient, project: str
) -> None:
    where = {"project": project}
    assert (await http.post("/v1/tasks", json=TASK | where, headers={"Prefer": "wait=30"})).status_code == 200
    proofs = (await http.get("/v1/audit/proofs/proved", params=where)).json()
    assert proofs["key"] == key(stack).public
    assert len(proofs["leaves"]) > 2
    (checkpoint,) = key(stack).read(proofs["checkpoint"])
    assert checkpoint.size == proofs["size"]
    listed = (await http.get("/v1/audit/checkpoints", params=where)).json()["items"]
    assert proofs["checkpoint"] in [each["note"] for each in listed]
    exported = (stack.data_dir / "memory" / "audit" / "checkpoints").read_text()
    assert proofs["checkpoint"] in exported
    (on_the_bus,) = key(stack).read(await from_the_bus(stack))
    assert on_the_bus.size >= checkpoint.size
    unknown = await http.get("/v1/audit/proofs/nobody", params=where)
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_task")


async def test_the_command_line_proves_exports_and_compares(
    stack: Stack, http: httpx.AsyncClient, project: str, tmp_path: Path
) -> None:
    where = ["--data-dir", str(stack.data_dir), "--project", project]
    assert (
        await http.post("/v1/tasks", json=TASK | {"project": project}, headers={"Prefer": "wait=30"})
    ).status_code == 200

    async def run(*words: str) -> Any:
        return await asyncio.to_thread(CliRunner().invoke, app, [*words, *where])

    async def script(*words: str) -> tuple[int | None, bytes]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(SCRIPT),
            "--key",
            key(stack).public,
            *words,
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        return process.returncode, output[:3]

    proved = await run("verify", "--task", "proved", "--json")
    assert proved.exit_code == 0, proved.output
    (tmp_path / "proofs.json").write_text(proved.output)
    assert await script("proofs.json") == (0, b"yes")
    assert "commit" in (await run("verify", "--task", "proved")).output
    leaves, kept = tmp_path / "leaves.jsonl", tmp_path / "kept"
    assert (await run("verify", "--export", str(leaves))).exit_code == 0
    newest = (await http.get("/v1/audit/checkpoints", params={"project": project, "limit": 1})).json()["items"][0]
    kept.write_text(newest["note"])
    assert len(leaves.read_text().splitlines()) >= newest["size"]
    assert await script("--checkpoint", str(kept), str(leaves)) == (0, b"yes")
    compared = await run("verify", "--checkpoints", str(kept))
    assert compared.exit_code == 0, compared.output
    assert "window" in compared.output
    assert (await run("verify", "--task", "proved", "--export", str(leaves))).exit_code == 2


async def test_a_refusal_over_http_has_an_id_that_explains_it(
    stack: Stack, http: httpx.AsyncClient, project: str
) -> None:
    where = {"project": project}
    body = {"kind": "develop", "description": "Write a parser for orders.", "task_id": "parser"}
    assert (await http.post("/v1/tasks", json=body | where, headers={"Prefer": "wait=30"})).status_code == 200
    override = {"instruction": f"use {SECRET}", "reasoning": "it is there"}
    refused = await http.post("/v1/tasks/parser/override", params=where, json=override)
    assert refused.status_code == 422, refused.text
    problem = refused.json()
    explained = (await http.get(f"/v1/audit/refusals/{problem['refusal']}", params=where)).json()
    assert (explained["rule"], explained["principal"]) == ("sensitive", "administrator")
    listed = (await http.get("/v1/audit/refusals", params=where)).json()["items"]
    assert [each["id"] for each in listed] == [problem["refusal"]]
    assert SECRET not in json.dumps([explained, listed])
    told = CliRunner().invoke(
        app, ["explain", problem["refusal"], "--data-dir", str(stack.data_dir), "--project", project]
    )
    assert told.exit_code == 0
    assert explained["text"] in told.output
    assert (await http.get("/v1/audit/refusals/nobody", params=where)).status_code == 404


async def test_a_timer_without_a_task_verifies(http: httpx.AsyncClient, project: str) -> None:
    """A workflow message of no task is stored with version 0."""
    job = {"job": {"namespace": "shop", "name": "load"}, "shadow": True}
    (await http.put("/v1/incident-settings", params={"project": project}, json=job)).raise_for_status()
    report = (await http.get("/v1/audit/verify", params={"project": project})).json()
    assert (report["ok"], report["broken"], report["commits"]) == (True, [], 1)

"""Output of each command on a running system: its words and its JSON."""

import asyncio
import json
from typing import Any

import httpx
from typer.testing import CliRunner
from ui.test_http_stack import published

from counterpoint.cli.main import app
from counterpoint.local.stack import Stack

ERROR = "could not connect to 10.0.0.7:5432: timed out"
EVENT = {
    "eventType": "FAIL",
    "eventTime": "2026-01-05T06:00:00Z",
    "run": {"runId": "01941f29-7c00-7000-8000-000000000001", "facets": {}},
    "job": {"namespace": "nightly", "name": "load_orders", "facets": {}},
    "inputs": [{"namespace": "postgres://orders", "name": "public.orders"}],
    "outputs": [{"namespace": "postgres://orders", "name": "public.clean"}],
    "producer": "https://example.com/scheduler",
    "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/definitions/RunEvent",
}


async def test_every_command_that_reads_prints_the_present_state(
    stack: Stack, http: httpx.AsyncClient, project: str
) -> None:
    async def run(*words: str) -> str:
        where = ["--data-dir", str(stack.data_dir)]
        arguments = [*words, *where, *([] if words[0] in ("status",) else ["--project", project])]
        told = await asyncio.to_thread(CliRunner().invoke, app, arguments)
        assert told.exit_code == 0, (words, told.output, told.exception)
        return told.output

    async def until(wanted: str, *words: str) -> str:
        async with asyncio.timeout(60):
            told = await run(*words)
            while wanted not in told:
                await asyncio.sleep(0.1)
                told = await run(*words)
        return told

    here = {"project": project}
    document = {"source": "runbooks/orders.md", "text": "# Orders\n\nRestart orders with `systemctl restart orders`."}
    (await http.post("/v1/documents", params=here, json=document)).raise_for_status()
    wait = {"Prefer": "wait=30"}
    broken = {"task_id": "broken", "kind": "troubleshoot", "description": "orders fail", "error_message": ERROR}
    (await http.post("/v1/tasks", params=here, json=broken, headers=wait)).raise_for_status()
    await published(stack, f"intake.{project}.lineage", EVENT)
    expected: dict[tuple[str, ...], str] = {
        ("tasks",): "broken",
        ("show", "broken"): "orders fail",
        ("why", "broken"): "developer",
        ("escalations",): "broken",
        ("search", "how is orders restarted"): "runbooks/orders.md",
        ("attempts",): "",
        ("lineage", "nightly/load_orders"): "public.clean",
        ("blast-radius", "nightly/load_orders"): "public.clean",
        ("dead-letters", "list"): "",
        ("principal", "list"): "administrator",
        ("verify",): "",
        ("status",): "memory",
    }
    for words, wanted in expected.items():
        assert wanted in await until(wanted, *words)
        assert json.loads(await run(*words, "--json")) is not None
    named = ["--job", "nightly/load_orders", "--wait", "--json", "--project", project]
    submitted = ["submit", "troubleshoot", "The load fails.", *named, "--data-dir", str(stack.data_dir)]
    printed = json.loads((await asyncio.to_thread(CliRunner().invoke, app, submitted)).stdout)
    assert [row["name"] for row in printed["findings"]["downstream"]] == ["public.clean"]


async def test_a_dead_letter_is_listed_shown_and_retried_from_the_command_line(
    stack: Stack, http: httpx.AsyncClient, project: str
) -> None:
    await published(stack, f"intake.{project}.task", b"{no json")
    where = ["--data-dir", str(stack.data_dir), "--project", project]

    async def run(*words: str) -> Any:
        return await asyncio.to_thread(CliRunner().invoke, app, [*words, *where])

    async with asyncio.timeout(60):
        letters: list[dict[str, Any]] = []
        while not letters:
            await asyncio.sleep(0.2)
            letters = json.loads((await run("dead-letters", "list", "--json")).output)["items"]
    (letter,) = letters
    listed = await run("dead-letters", "list")
    assert listed.exit_code == 0, listed.exception
    assert letter["dead_letter_id"] in listed.output
    assert "malformed" in listed.output
    assert "{no json" in (await run("dead-letters", "show", letter["dead_letter_id"])).output
    assert "sent again" in (await run("dead-letters", "retry", letter["dead_letter_id"])).output
    again = await run("dead-letters", "retry", letter["dead_letter_id"])
    assert again.exit_code == 1

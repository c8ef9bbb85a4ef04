"""The first day: past incidents and what lies around are enough to begin with, through all five services."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner
from ui.test_cli_packages import wheel

from counterpoint.cli.ingest import bootstrap
from counterpoint.cli.main import app
from counterpoint.local.stack import Stack

ERROR = "OperationalError: could not connect to server db-{}.internal:5432: too many clients already"
WORKED = "Raise max_connections of the pooler to 400 and restart it."
FAILED = "Restart the scheduler."
TABLE = f"""error,tried,outcome,when,by,note
"{ERROR.format(1)}",{WORKED},fixed,2026-03-04,ada,The pooler was sized for the old cluster.
"{ERROR.format(2)}",{FAILED},did not help,2026-03-03,bob,
"""


class Desk:
    """The command line and the HTTP API in a project of one's own."""

    def __init__(self, stack: Stack, http: httpx.AsyncClient, project: str) -> None:
        self.stack = stack
        self.http = http
        self.project = project

    async def ingest(self, *words: str) -> tuple[int, dict[str, Any]]:
        """Exit code and report."""
        where = ["--data-dir", str(self.stack.data_dir), "--project", self.project, "--json"]
        told = await asyncio.to_thread(CliRunner().invoke, app, ["ingest", *words, *where])
        return told.exit_code, json.loads(told.stdout) if told.stdout else {}

    async def troubleshoot(self, number: int) -> dict[str, Any]:
        """A new task with the same error as far as its signature goes."""
        task = {
            "kind": "troubleshoot",
            "description": "The nightly load of the orders stops.",
            "error_message": ERROR.format(number),
        }
        reply = await self.http.post(
            "/v1/tasks", params={"project": self.project}, json=task, headers={"Prefer": "wait=30"}
        )
        reply.raise_for_status()
        found: dict[str, Any] = reply.json()
        return found

    async def until_proposed(self, task_id: str) -> dict[str, Any]:
        """A task that waited, as soon as it has something to try."""
        async with asyncio.timeout(60):
            while True:
                reply = await self.http.get(f"/v1/tasks/{task_id}", params={"project": self.project, "wait": 2})
                found: dict[str, Any] = reply.json()
                if found.get("proposal"):
                    return found

    async def plan(self, system: str) -> str:
        """Return the result of a plan for a system."""
        task = {"kind": "plan", "description": "Book the orders into the ledger.", "systems": [system]}
        reply = await self.http.post(
            "/v1/tasks", params={"project": self.project}, json=task, headers={"Prefer": "wait=30"}
        )
        reply.raise_for_status()
        return reply.text


@pytest.fixture
def desk(stack: Stack, http: httpx.AsyncClient, project: str) -> Desk:
    return Desk(stack, http, project)


async def test_past_incidents_decide_the_first_task_of_an_empty_project(desk: Desk, tmp_path: Path) -> None:
    before = await desk.troubleshoot(7)
    assert before["state"] == "input_required"
    assert before["waiting_for"] != "outcome"
    assert "proposal" not in before

    file = tmp_path / "incidents.csv"
    file.write_text(TABLE)
    code, report = await desk.ingest(str(file), "--type", "troubleshooting")
    assert code == 0, report
    assert [(one["row"], one["status"]) for one in report["incidents"]] == [(2, "added"), (3, "added")]
    code, report = await desk.ingest(str(file), "--type", "troubleshooting")
    assert [one["status"] for one in report["incidents"]] == ["unchanged", "unchanged"]
    woken = await desk.until_proposed(before["task_id"])
    assert WORKED in woken["proposal"]

    after = await desk.troubleshoot(8)
    assert after["waiting_for"] == "outcome", after
    assert WORKED in after["proposal"]
    assert FAILED not in after["proposal"]
    known = after["findings"]["similar_attempts"]
    assert [(one["outcome"], one["by"], one["evidence"]) for one in known] == [
        ("succeeded", "ada", "reported"),
        ("failed", "bob", "reported"),
    ]
    assert any(FAILED in caveat for caveat in after["findings"]["caveats"])
    assert after["findings"]["citations"][0]["store"] == "attempts"
    assert after["confidence"]["band"] == "medium"


async def test_incidents_from_an_agent_are_stored_and_decide_nothing(desk: Desk, tmp_path: Path) -> None:
    body = {"name": f"scribe-{desk.project}", "kind": "agent", "projects": [desk.project], "roles": ["ingest"]}
    made = await desk.http.post("/v1/principals", json=body)
    made.raise_for_status()
    incident = {
        "source": "notes",
        "error_message": ERROR.format(1),
        "tried": WORKED,
        "outcome": "succeeded",
        "when": "2026-03-04T00:00:00Z",
        "by": "ada",
    }
    reply = await desk.http.post(
        "/v1/attempts",
        params={"project": desk.project},
        json={"incidents": [incident]},
        headers={"Authorization": f"Bearer {made.json()['token']}"},
    )
    assert reply.json()["incidents"][0]["status"] == "added", reply.text
    task = await desk.troubleshoot(9)
    assert task["waiting_for"] != "outcome"
    assert [one["tried"] for one in task["findings"]["similar_attempts"]] == [WORKED]


async def test_a_bootstrap_that_broke_off_goes_on_and_memory_has_all_of_it(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bootstrap, "PHASES", ("dags", "providers", "docs"))
    (tmp_path / "dags").mkdir()
    for name in ("orders", "stock", "invoices"):
        (tmp_path / "dags" / f"{name}.py").write_text(f'"""Loads the {name}."""\n\nDAG_ID = "{name}_daily"\n')
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "orders.md").write_text("# Orders\n\nThe orders come at six from the shop.\n")
    (tmp_path / "wheels").mkdir()
    wheel(tmp_path / "wheels")
    options = ("--bootstrap", "--providers-dir", "wheels")

    assert "no_provider" in await desk.plan("Acme Ledger")
    real = bootstrap.send_with_progress

    def broken_off(console: Any, api: Any, documents: Any, project: Any) -> Any:
        real(console, api, documents[:2], project)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(bootstrap, "send_with_progress", broken_off)
        code, _ = await desk.ingest(*options)
        assert code == 1

    code, report = await desk.ingest(*options)
    assert code == 0, report
    dags, providers, docs = report["phases"]
    assert dags["counts"] == {"unchanged": 2, "added": 1}
    assert providers["counts"] == {"added": 5}
    assert docs["counts"] == {"added": 1}
    assert all(probe["found"] for phase in report["phases"] for probe in phase["health"])

    code, report = await desk.ingest(*options)
    assert code == 0
    assert {phase["status"] for phase in report["phases"]} == {"unchanged"}

    assert "no_provider" not in await desk.plan("Acme Ledger")

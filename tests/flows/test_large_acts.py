"""An erasure of more records than one person may erase, on the running system, by the command line of two people."""

import json
from typing import Any

import httpx
import pytest
from flows.project_command import Command
from typer.testing import CliRunner

from counterpoint.cli.main import app
from counterpoint.local.stack import Stack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
COUNT = 1010


def incident(number: int) -> dict[str, Any]:
    at = {"source": "incidents.csv", "id": str(number), "when": "2026-03-04T00:00:00Z", "by": "ada"}
    return at | {"error_message": f"Disk {number} full", "tried": f"Emptied /tmp/{number}", "outcome": "succeeded"}


async def test_a_second_person_approves_and_the_same_command_then_erases(
    stack: Stack, project: str, http: httpx.AsyncClient
) -> None:
    for first in range(0, COUNT, 505):
        incidents = [incident(number) for number in range(first, min(first + 505, COUNT))]
        (await http.post("/v1/attempts", json={"incidents": incidents, "project": project})).raise_for_status()
    run = Command(stack, project)
    erase = ("erase", "--everything", "--reason", "the contract has ended", "--yes")
    asked = run(*erase, code=4)
    assert (asked["category"], asked["requested_by"]) == ("erasure", "administrator")
    assert f"{COUNT} records are erased" in asked["artifact"]
    assert f"counterpoint approve {asked['approval_id']}" in asked["next"]
    assert run(*erase, code=4)["approval_id"] == asked["approval_id"]
    own = run("approve", asked["approval_id"], code=1)
    assert (own["code"], "a second person" in json.dumps(own)) == ("role", True)
    assert run("approvals")["items"][0]["artifact"] == asked["artifact"]

    name = f"ana-{project}"
    body = {"name": name, "kind": "person", "projects": [project], "roles": ["approve", "read"]}
    made = (await http.post("/v1/principals", json=body)).raise_for_status().json()
    options = ("--url", stack.endpoints.http, "--token", made["token"], "--project", project)
    decided = CliRunner().invoke(app, ["approve", asked["approval_id"], *options])
    assert decided.exit_code == 0, decided.output
    assert "asked for by administrator" in decided.output
    erased = run(*erase)
    assert erased["gone"]["attempts"] == COUNT
    assert run("attempts")["items"] == []
    (closed,) = run("approvals", "--state", "all", "--category", "erasure")["items"]
    assert (closed["state"], closed["decided_by"]) == ("applied", name)

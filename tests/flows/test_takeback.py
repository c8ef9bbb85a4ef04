"""A wrong document is traced, taken out and put back by the command line, on the running system."""

import time
from pathlib import Path

from flows.project_command import Command

from counterpoint.local.stack import Stack

WRONG = "The nightly export of the ledger is repaired by deleting the table ledger_export and starting it again.\n"
RIGHT = "The nightly export of the ledger is repaired by restarting the export worker and running it again.\n"
QUESTION = "How is the nightly export of the ledger repaired?"


def test_a_wrong_document_is_traced_taken_out_and_put_back(stack: Stack, project: str, tmp_path: Path) -> None:
    run = Command(stack, project)
    page = tmp_path / "ledger.md"
    page.write_text(RIGHT)
    source = run("ingest", str(page))["documents"][0]["source"]
    page.write_text(WRONG)
    run("ingest", str(page))
    answer = run("ask", QUESTION)
    assert "deleting the table" in answer["result"]

    radius = run("blast-radius", "--memory", source)
    stores = {each["store"] for each in radius["items"]}
    assert {"decisions", "actions", "tasks"} <= stores
    assert radius["tasks"] == [answer["task_id"]]
    assert min(each["hops"] for each in radius["items"]) == 1
    assert run("blast-radius", "--memory", "documents/doc-none", code=1)["status"] == 404

    missing = run("quarantine", "nothere.md", code=1)
    assert missing["status"] == 404
    assert f"nothere.md is not a memory of project {project}" in missing["errors"][0]["problem"]

    out = run("quarantine", source, "--reason", "it deletes a table")
    assert out["out"]["documents"] == out["out"]["chunks"] == 1
    assert run("search", QUESTION)["items"] == []
    asked_again = run("ask", QUESTION, code=4)
    assert asked_again["escalation"]["code"] == "insufficient_evidence"
    assert run("show", answer["task_id"])["state"] == "completed"

    run("quarantine", out["quarantine_id"], "--lift")
    (passage,) = run("search", QUESTION)["items"]
    assert passage["text"] == WRONG.strip()

    back = run("rollback", source)
    assert back["restored"] == {"chunks": 1, "documents": 1}
    (passage,) = run("search", QUESTION)["items"]
    assert passage["text"] == RIGHT.strip()
    assert run("verify")["ok"]


def test_a_line_is_shown_as_it_was(stack: Stack, project: str, tmp_path: Path) -> None:
    run = Command(stack, project)
    page = tmp_path / "ledger.md"
    page.write_text(WRONG)
    source = run("ingest", str(page))["documents"][0]["source"]
    task_id = run("ask", QUESTION)["task_id"]
    before = run("why", task_id)
    run("quarantine", source)
    assert len(run("why", task_id)["items"]) < len(before["items"])
    then = run("why", task_id, "--as-of", before["items"][-1]["at"])
    assert len(then["items"]) >= len(before["items"]) - 1
    assert run("search", QUESTION, "--as-of", before["items"][-1]["at"])["items"]
    assert run("why", task_id, "--as-of", "yesterday", code=1)["code"] == "invalid"


def test_a_document_a_task_and_a_project_are_forgotten(stack: Stack, project: str, tmp_path: Path) -> None:
    run = Command(stack, project)
    page = tmp_path / "ledger.md"
    page.write_text(WRONG)
    source = run("ingest", str(page))["documents"][0]["source"]
    task_id = run("ask", QUESTION)["task_id"]
    run("erase", code=2)
    run("erase", "--source", source, code=2)
    assert run("erase", "--source", "other.md", "--yes", code=1)["status"] == 404
    gone = run("erase", "--source", source, "--yes", "--reason", "it names a customer")
    assert gone["state"] == "erased"
    assert {"documents", "chunks", "tasks", "decisions"} <= gone["gone"].keys()
    assert run("show", task_id, code=1)["status"] == 404
    assert run("search", QUESTION)["items"] == []
    other = run("ask", "Who owns the weather?", code=4)["task_id"]
    assert run("erase", "--task", other, "--yes")["gone"]["tasks"] == 1
    run("ingest", str(page))
    assert run("erase", "--everything", "--yes")["gone"]["documents"] == 1
    assert run("tasks")["items"] == []
    assert run("verify")["ok"]


def test_mentions_in_documents_form_a_graph(stack: Stack, project: str, tmp_path: Path) -> None:
    run = Command(stack, project)
    for name in ("one", "two"):
        page = tmp_path / f"{name}.md"
        page.write_text(f"The host {name}.carrier.internal speaks SFTP.\n")
        run("ingest", str(page))
    deadline = time.monotonic() + 30
    while len(found := run("entities", "carrier")["items"]) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert {each["kind"] for each in found} == {"service"}
    (sftp,) = run("entities", "--kind", "system")["items"]
    around = run("neighbours", sftp["id"], "--depth", "2")["neighbours"]
    assert {each["hops"] for each in around} == {1, 2}
    assert {each["properties"]["name"] for each in around if each["hops"] == 2} == {
        "one.carrier.internal", "two.carrier.internal"
    }  # fmt: skip
    assert run("neighbours", "system-none", code=1)["status"] == 404


PAGE = """# Ledger export

## LedgerLocked: ledger is locked by user

1. Run `ledgerctl unlock --force`.
2. Start the export again.
"""
ERROR = "billing.errors.LedgerLocked: ledger is locked by user batch"


def test_a_persons_instruction_outlives_the_page_that_the_task_quoted(
    stack: Stack, project: str, tmp_path: Path
) -> None:
    run = Command(stack, project)
    page = tmp_path / "ledger.md"
    page.write_text(PAGE)
    source = run("ingest", str(page))["documents"][0]["source"]
    error = tmp_path / "error.txt"
    error.write_text(ERROR)
    made = run("submit", "troubleshoot", "The ledger export stops", "--error-file", str(error), "--wait", code=4)
    task_id = made["task_id"]
    assert "ledgerctl unlock" in made["proposal"]
    run("outcome", task_id, "failed")
    instruction = "Restart the ledger service on node 3"
    run("override", task_id, instruction, "--reason", "its lock is stale", "--confidence-override")
    reached(run, instruction, "unknown")
    run("outcome", task_id, "succeeded")
    reached(run, instruction, "succeeded")
    run("quarantine", source)
    (left,) = run("attempts")["items"]
    assert (left["tried"], left["outcome"]) == (instruction, "succeeded")


def reached(run: Command, tried: str, outcome: str) -> None:
    """Wait for the attempt at an act to have an outcome."""
    deadline = time.monotonic() + 30
    while not any((each["tried"], each["outcome"]) == (tried, outcome) for each in run("attempts")["items"]):
        assert time.monotonic() < deadline

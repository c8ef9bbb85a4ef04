"""Used evidence is told from shown evidence, and a job is known from every source that names it, on a real stack."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from flows.project_command import Command

from counterpoint.local.stack import Stack

PAGE = """# Harbour pipelines

| Pipeline | Owner | Runs at |
|---|---|---|
| harbour_tides | Quay team | 04:10 |

When the tide gauge is dry, harbour_tides is repaired by switching to the spare gauge and running it again.
"""
CODE = "https://git.example/harbour"
GAUGE = "How is harbour_tides repaired when the tide gauge is dry?"


def event(kind: str, run: str, at: str, **more: Any) -> dict[str, Any]:
    facets = {"errorMessage": {"message": "TideError: gauge 7 is dry"}} if kind == "FAIL" else {}
    code = {"type": "git", "url": f"{CODE}/tides.py", "repoUrl": CODE, "path": "tides.py", "version": "4f1"}
    owners = {"ownership": {"owners": [{"name": "quay"}]}, "sourceCodeLocation": code}
    return {
        "eventTime": f"2026-11-20T04:{at}:00Z",
        "eventType": kind,
        "run": {"runId": run, "facets": facets},
        "job": {"namespace": "prod", "name": "harbour_tides", "facets": owners},
        "inputs": [{"namespace": "postgres://gauges.internal:5432", "name": "gauges.readings"}],
        "outputs": [{"namespace": "lake", "name": "tides"}],
        **more,
    }


@pytest.mark.slow
def test_a_persons_fix_stays_when_a_page_that_was_only_shown_is_taken_back(
    stack: Stack, project: str, tmp_path: Path
) -> None:
    run = Command(stack, project)
    page = tmp_path / "harbour.md"
    page.write_text(PAGE)
    source = run("ingest", str(page))["documents"][0]["source"]
    answer = run("ask", GAUGE)
    stopped = run("submit", "troubleshoot", "The mail job of the office hangs at night", "--wait", code=4)
    run("outcome", stopped["task_id"], "succeeded", "--note", "Restarted the mail relay")

    used, shown = run("blast-radius", "--memory", source), run("blast-radius", "--memory", source, "--shown")
    assert used["tasks"] == [answer["task_id"]]
    assert set(shown["tasks"]) == {answer["task_id"], stopped["task_id"]}
    assert all(each["cited"] for each in used["items"])
    assert not all(each["cited"] for each in shown["items"])

    def state() -> str:
        lines = [run("why", task["task_id"])["items"] for task in (answer, stopped)]
        return json.dumps([lines, run("attempts")["items"], [each["text"] for each in run("search", GAUGE)["items"]]])

    before = state()
    out = run("quarantine", source, "--reason", "it is wrong")
    assert out["tasks"] == [answer["task_id"]]
    assert "attempts" not in out["out"]
    assert [each["tried"] for each in run("attempts")["items"]] == ["Restarted the mail relay"]
    back = run("rollback", source, "--reason", "it is wrong")
    run("quarantine", out["quarantine_id"], "--lift")
    assert run("search", GAUGE)["items"] == []
    run("quarantine", back["quarantine_id"], "--lift")
    assert state() == before


def test_a_job_is_known_by_lineage_tables_failures_and_fixes(stack: Stack, project: str, tmp_path: Path) -> None:
    run = Command(stack, project)
    page = tmp_path / "harbour.md"
    page.write_text(PAGE)
    run("ingest", str(page))
    first = "0193a000-0000-7000-8000-000000000001"
    headers = {"authorization": f"Bearer {stack.endpoints.token}"}
    for each in (event("START", first, "10"), event("FAIL", first, "11")):
        sent = httpx.post(
            f"{stack.endpoints.lineage}/api/v1/lineage?project={project}", json=each, headers=headers, trust_env=False
        )
        assert sent.status_code == 201
    error = ("submit", "troubleshoot", "harbour_tides failed with TideError", "--job", "prod/harbour_tides", "--wait")
    task = run(*error, code=4)
    run("outcome", task["task_id"], "succeeded", "--by", "something-else", "--note", "Switched to gauge 8")

    known = run("entities", "harbour_tides")["known"]
    assert {(each["kind"], each["name"]) for each in known["things"]} >= {("job", "harbour_tides")}
    assert known["owned_by"] == ["quay", "Quay team"]
    assert known["fed_by"] == ["gauges.readings"]
    assert known["feeds"] == ["tides"]
    assert known["broken_by"][0]["exception"] == "TideError"
    assert "Switched to gauge 8" in [each["tried"] for each in known["fixed_by"]]
    assert known["documented_in"]
    assert run("entities", "tides")["known"]["truncated"] is False
    error = run("entities", "TideError")["known"]
    assert {each["kind"] for each in error["things"]} >= {"exception"}
    assert [each["tried"] for each in error["fixed_by"]] == ["Switched to gauge 8"]
    by_owner = run("entities", "Quay team")["known"]
    assert by_owner["owns"] == ["harbour_tides"]
    assert run("entities", "gauges.internal")["known"]["relations"][0]["kind"] == "runs_on"
    assert ("depends_on", "harbour_tides", CODE) in {
        (each["kind"], each["source"]["name"], each["target"]["name"])
        for each in run("entities", CODE)["known"]["relations"]
    }
    assert run("entities", "zeppelin")["known"]["relations"] == []
    owner = run("ask", "Who owns harbour_tides?")
    assert "The job prod/harbour_tides is owned by quay. [1]" in owner["result"]
    assert "| harbour_tides | Quay team | 04:10 |" in owner["result"]
    assert owner["findings"]["citations"][0]["store"] == "jobs"
    inherited = run("ask", "Who owns the data set tides?")
    assert "lake/tides is written by the job prod/harbour_tides, which is owned by quay. [1]" in inherited["result"]
    for each in (owner, inherited):
        assert run("replay", each["task_id"])["verdict"] == "same"

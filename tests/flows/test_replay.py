"""Tasks of every kind are replayed from their record: their contexts are the same, and so are their decisions."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from flows.replayed_tasks import ChangedApi, Tasks

from counterpoint.cli.replay.processes import ReplayProcesses
from counterpoint.cli.replay.task import TaskReport, replay_task
from counterpoint.local.stack import Stack

FIX = "Restarted the ldap service and renewed its certificate"
FAILED = "ldap bind to ipa.example.com:636 failed: certificate verify failed: certificate has expired"
RUNBOOK = "# Orders\n\nRestart orders with `systemctl restart orders`. Orders are kept for ten years."
LEDGER = "# Ledger\n\nThe nightly export of the ledger is repaired by restarting the export worker."
EXPORT = "How is the nightly export of the ledger repaired?"
LOGIN = "The login of the portal fails"


@pytest.fixture(scope="module")
def processes() -> Iterator[ReplayProcesses]:
    with ReplayProcesses() as processes:
        yield processes


@pytest.fixture
def tasks(
    stack: Stack, http: httpx.AsyncClient, project: str, processes: ReplayProcesses, monkeypatch: pytest.MonkeyPatch
) -> Tasks:
    """Tasks whose replays share their processes, except under a policy: a start takes a second of a processor."""

    def started(policy: Path | None) -> AbstractContextManager[ReplayProcesses]:
        return ReplayProcesses(policy) if policy else nullcontext(processes)

    monkeypatch.setattr("counterpoint.cli.replay.processes.ReplayProcesses", started)
    return Tasks(stack, http, project)


async def fixed_before(tasks: Tasks) -> str:
    """A failure that a person fixed, and the same failure again; return the id of the attempt."""
    await tasks.submit("first", "troubleshoot", LOGIN, error_message=FAILED)
    await tasks.solved("first", note=FIX)
    again = await tasks.submit("again", "troubleshoot", LOGIN, error_message=FAILED)
    assert FIX in again["proposal"]
    await tasks.solved("again")
    return str(again["findings"]["similar_attempts"][0]["id"])


async def every_kind(tasks: Tasks) -> set[str]:
    """Ended tasks of every kind; return their ids."""
    await tasks.post("/v1/documents", {"source": "runbooks/orders.md", "text": RUNBOOK})
    await tasks.submit("answered", "question", "For how many years are orders kept?")
    await fixed_before(tasks)
    await tasks.submit("unanswered", "question", EXPORT)
    await tasks.post("/v1/documents", {"source": "runbooks/ledger.md", "text": LEDGER})
    soon = (datetime.now(UTC) + timedelta(seconds=3)).isoformat()
    # It is searched for again in other words, as long as there is time.
    await tasks.submit("urgent", "question", "Who is the king of the moon?", deadline=soon)
    await tasks.submit("talk", "question", "For how many years are orders kept?", session_id="talk")
    await tasks.submit("follow-up", "question", "And how are orders restarted?", session_id="talk")
    await tasks.submit("provider", "plan", "Read users from the directory", systems=["freeipa", "postgres"])
    instruction = {"instruction": "Use the ldap3 package.", "reasoning": "No provider", "constraints": ["no shell"]}
    await tasks.post("/v1/tasks/provider/override", instruction)
    await tasks.until("provider", "completed")
    await tasks.submit("stuck", "troubleshoot", "The queue of the mail relay is stuck", error_message="queue full")
    await tasks.post("/v1/tasks/stuck/override", instruction)
    await tasks.until("stuck", "input_required", waiting_for="outcome")
    await tasks.post("/v1/tasks/stuck/outcome", {"outcome": "failed", "error_message": "queue full"})
    await tasks.submit("cancelled", "develop", "Write a job that loads orders")
    for each in ("urgent", "stuck", "cancelled"):
        await tasks.post(f"/v1/tasks/{each}/cancel", {"reason": "no longer needed"})
        # On a slow machine the deadline of the urgent one comes first.
        await tasks.until(each, "cancelled", *(("failed",) if each == "urgent" else ()))
    # The ingested document resumes it by a timer, after the deadline of the other.
    await tasks.until("unanswered", "completed")
    return {"answered", "first", "again", "unanswered", "urgent", "talk", "follow-up", "provider", "stuck", "cancelled"}


async def test_tasks_of_every_kind_have_the_same_contexts_and_decisions(tasks: Tasks) -> None:
    expected = await every_kind(tasks)
    reports = (await tasks.replay("--all"))["tasks"]
    assert {report["task_id"] for report in reports} >= expected
    for report in reports:
        assert report["verdict"] == "same", report
        assert report["contexts"] == len(report["steps"])
        verdicts = [step["verdict"] for step in report["steps"] if step["service"] in ("developer", "manager")]
        assert set(verdicts) == {"same"}
    assert (await tasks.replay("--all", "--since", "2999-01-01"))["tasks"] == []
    assert "| same |" in (await tasks.run("replay", "--all")).output


async def test_a_replay_writes_nothing(tasks: Tasks) -> None:
    await fixed_before(tasks)
    before = await tasks.leaves()
    await tasks.replay("again", "--without", "attempts/none")
    # Lineage and the knowledge graph follow the tasks meanwhile.
    assert await tasks.writers_since(before) <= {"lineage", "memory"}
    assert json.loads((await tasks.run("verify", "--json")).stdout)["ok"]


async def test_another_model_makes_no_difference_to_a_task_that_called_none(tasks: Tasks) -> None:
    await fixed_before(tasks)
    done = await tasks.run("replay", "again", "--model", "openai/gpt-4o")
    assert done.exit_code == 1
    assert "no step of task again called a model" in done.output
    for words, problem in (
        (("again", "--budget", "1"), "need --model"),
        (("again", "--model", " "), "the name of a model"),
        (("again", "--model", "openai/gpt-4o", "--budget", "inf"), "an amount in US dollars"),
    ):
        refused = await tasks.run("replay", *words)
        assert refused.exit_code == 2
        assert problem in refused.output


async def test_without_the_attempt_that_had_the_fix_it_would_not_have_been_proposed(tasks: Tasks) -> None:
    attempt = await fixed_before(tasks)
    report = await tasks.replay("again", "--without", f"attempts/{attempt}")
    assert report["verdict"] == "different"
    assert report["left_out"] > 0
    (step,) = (each for each in report["steps"] if "difference" in each)
    assert step["service"] == "developer"
    assert FIX in json.dumps(step["recorded"])
    assert FIX not in json.dumps(step["replayed"])
    assert [each["decision"] for each in step["replayed"]] == ["stop", "low_confidence"]
    assert {each["verdict"] for each in report["steps"][report["steps"].index(step) + 1 :]} <= {
        "follows",
        "not replayed",
    }
    shown = (await tasks.run("replay", "again", "--without", f"attempts/{attempt}")).output
    assert "First difference: developer" in shown
    unknown = await tasks.replay("again", "--without", "attempts/none")
    assert (unknown["verdict"], unknown["left_out"]) == ("same", 0)


async def test_without_its_document_a_question_would_have_been_searched_again(tasks: Tasks) -> None:
    await tasks.post("/v1/documents", {"source": "runbooks/orders.md", "text": RUNBOOK})
    await tasks.submit("answered", "question", "For how many years are orders kept?")
    report = await tasks.replay("answered", "--without", "runbooks/orders.md")
    (step,) = (each for each in report["steps"] if "difference" in each)
    assert "asks for more than was read" in step["difference"]["replayed"]


@pytest.mark.slow
async def test_another_policy_decides_otherwise(tasks: Tasks, tmp_path: Path) -> None:
    await fixed_before(tasks)
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"limits": {"outcome_wait_s": 60}}))
    report = await tasks.replay("again", "--policy", str(policy))
    assert (report["verdict"], report["policy"]) == ("different", str(policy))
    (step,) = (each for each in report["steps"] if "difference" in each)
    assert step["service"] == "manager"
    assert step["difference"]["at"].endswith("due_at")
    policy.write_text(json.dumps({"calibration": {"answer": {"threshold": 0.5}}}))
    assert (await tasks.replay("again", "--policy", str(policy)))["verdict"] == "same"
    policy.write_text(json.dumps({"limits": {"patience_s": 60}}))
    assert "patience_s" in json.dumps(await tasks.replay("again", "--policy", str(policy), code=1))
    policy.write_text(json.dumps({"thresholds": {}}))
    assert "calibration or limits" in json.dumps(await tasks.replay("again", "--policy", str(policy), code=2))


async def test_a_record_that_differs_is_different(tasks: Tasks, processes: ReplayProcesses) -> None:
    await fixed_before(tasks)
    page = await tasks.post("/v1/tasks/again/replay", {}, limit=200)

    def replayed(find: str, replace: str) -> TaskReport:
        assert find in json.dumps(page, ensure_ascii=False)
        return replay_task(ChangedApi(page, find, replace), "again", None, processes)  # type: ignore[arg-type]

    assert replayed(FIX, FIX).verdict == "same"
    decided = replayed('"decision": "go on"', '"decision": "give up"')
    assert decided.verdict == "different"
    (step,) = (each for each in decided.steps if each.difference)
    assert step.difference is not None
    assert step.difference.at.endswith("data.decision")
    assert (step.difference.recorded, step.difference.replayed) == ("give up", "go on")
    asked = replayed('"query": "', '"query": "x')
    assert [each.difference.replayed[:24] for each in asked.steps if each.difference] == ["asks for something else "]
    for kind, verdict in (("differs", "broken"), ("erased", "erased"), ("report", "not replayed")):
        problem = json.dumps({"kind": kind, "problem": "attempts/a differs from what was committed"})
        unfit = replayed('"problems": []', f'"problems": [{problem}]')
        assert (unfit.verdict, unfit.contexts) == (verdict, 0)
        assert {step.verdict for step in unfit.steps} == {verdict}


async def test_a_step_whose_call_a_limit_refused_is_not_replayed(tasks: Tasks, processes: ReplayProcesses) -> None:
    await fixed_before(tasks)
    page = await tasks.post("/v1/tasks/again/replay", {}, limit=200)
    (worked,) = (step for step in page["items"] if step["record"]["service"] == "developer")
    refused = worked | {"leaf": 10**6, "record": worked["record"] | {"service": "manager", "step": "refuse x 0"}}
    page["items"].append(refused)
    report = replay_task(ChangedApi(page, "", ""), "again", None, processes)  # type: ignore[arg-type]
    (step,) = (each for each in report.steps if each.leaf == worked["leaf"])
    assert (step.verdict, step.why) == ("not replayed", ("a limit refused a call of it",))


async def test_a_step_whose_answers_were_not_recorded_is_not_replayed(tasks: Tasks, processes: ReplayProcesses) -> None:
    await fixed_before(tasks)
    page = await tasks.post("/v1/tasks/again/replay", {}, limit=200)
    page["items"] = [step for step in page["items"] if "read_set" in step["record"]]
    for step in page["items"]:
        step["record"] |= {"answers": [], "read_set": step["record"]["read_set"][:2]}
        step["requests"] = []
    report = replay_task(ChangedApi(page, "", ""), "again", None, processes)  # type: ignore[arg-type]
    assert (report.verdict, report.contexts) == ("not replayed", 0)
    whys = {why for step in report.steps if step.service != "lineage" for why in step.why}
    assert whys == {"an earlier release committed it, which did not record the answers"}


async def test_a_task_that_cannot_be_replayed_is_refused_with_a_reason(tasks: Tasks, http: httpx.AsyncClient) -> None:
    assert (await tasks.replay("nothing", code=1))["code"] == "unknown_task"
    await tasks.submit("open", "question", EXPORT)
    running = await tasks.replay("open", code=1)
    assert running["code"] == "conflict"
    assert "has not ended" in running["errors"][0]["problem"]
    body = {"name": f"reader-{tasks.project}", "kind": "person", "projects": [tasks.project], "roles": ["read"]}
    token = (await http.post("/v1/principals", json=body)).json()["token"]
    reader = {"Authorization": f"Bearer {token}"}
    denied = await http.post("/v1/tasks/open/replay", params={"project": tasks.project}, headers=reader)
    assert (denied.status_code, denied.json()["code"]) == (403, "role")
    for words in ((), ("open", "--all"), ("open", "--since", "2026-01-01"), ("--all", "--since", "soon")):
        await tasks.replay(*words, code=2)


async def test_a_replay_names_erased_records(tasks: Tasks) -> None:
    for source, text in (("orders.md", RUNBOOK), ("ledger.md", LEDGER)):
        await tasks.post("/v1/documents", {"source": source, "text": text})
    await tasks.submit("answered", "question", "For how many years are orders kept?")
    assert (await tasks.run("erase", "--source", "ledger.md", "--yes")).exit_code == 0
    report = await tasks.replay("answered", code=1)
    (step,) = (each for each in report["steps"] if each["verdict"] == "erased")
    assert report["verdict"] == "erased"
    assert step["service"] == "developer"
    assert all("chunks/" in why and why.endswith("was erased") for why in step["why"])
    assert (await tasks.run("erase", "--source", "orders.md", "--yes")).exit_code == 0
    erased = await tasks.replay("answered", code=1)
    assert (erased["status"], erased["errors"][0]["problem"]) == (404, "was erased")

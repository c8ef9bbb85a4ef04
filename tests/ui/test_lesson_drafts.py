"""Drafts of postmortems and runbooks: quotes with their sources, marked gaps, and nothing that comes to life."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner
from ui.cli_data import incident
from ui.cli_server import ScriptedApi
from ui.http_front import PROJECT, RunningFront, put_task
from ui.lesson_strategies import TEXTS

from counterpoint.card.draft import DraftForm, IncidentRecords, draft
from counterpoint.cli.main import app
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.line import Action
from counterpoint.proto.tasks import Task

AT = datetime(2026, 11, 17, 6, tzinfo=UTC)
EVIL = "![x](http://evil.example/a.png) <script>alert(1)</script> [here](javascript:x) https://evil.example @everyone"
both = pytest.mark.parametrize("form", list(DraftForm))
GENERATED = re.compile(r"(#{1,3} |- )?[\w :;,.()*'/-]*")
"""A line of ours once its quotes are taken out."""


def attempt(number: int, outcome: str, **more: Any) -> Attempt:
    """An attempt at the incident."""
    body = {"attempt_id": f"a{number}", "task_id": "t", "project": "orders", "attempt": number, "description": "x"}
    rest = {"tried": f"thing {number}", "outcome": outcome, "by": "ada", "at": AT, "decided_at": AT}
    return Attempt.model_validate(body | rest | more)


def records(*attempts: Attempt, actions: tuple[Action, ...] = (), **more: Any) -> IncidentRecords:
    """The records of an incident that has ended."""
    ended = {"state": "completed", "resolution": "resolved", "ended_at": "2026-11-17T07:00:00Z", "waiting_for": None}
    return IncidentRecords(Task.model_validate(incident(**ended) | more), attempts, actions)


def outside(text: str) -> list[str]:
    """The lines of a draft outside of blocks, without the code within them."""
    found, fence = [], ""
    for line in text.split("\n"):
        if not fence and (opened := re.fullmatch(r"(`{3,})(text|json)", line)):
            fence = opened[1]
        elif fence and line == fence:
            fence = ""
        elif not fence:
            found.append(re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", line))
    assert fence == ""
    return found


def test_a_postmortem_states_the_records_and_names_each_source() -> None:
    action = Action.model_validate(
        {
            "action_id": "x",
            "task_id": "t",
            "agent": "developer",
            "kind": "propose",
            "reasoning": "a runbook fits",
            "at": AT,
        }
    )
    fix = attempt(2, "succeeded", note="It was full.", cause="The cache was never emptied.", verification="dig answers")
    text = draft(records(attempt(1, "failed"), fix, actions=(action,)), DraftForm.POSTMORTEM)
    for expected in (
        "- Reported by `counterpoint/lineage` at 2026-11-17 05:30:20 UTC (task)",
        "- Owner: `team-ingest` (events)",
        "- 1 hop downstream: `ns/clean_orders`, owner `team-ingest` (lineage)",
        "- 2026-11-17 06:00:00 UTC: `developer`, `propose`: `a runbook fits` (action)",
        "```text\nThe cache was never emptied.\n```",
        "Outcome: `failed`, `reported` by `ada` at 2026-11-17 06:00:00 UTC. Tried:\n\n```text\nthing 1\n```",
        "Attempt 2, `reported` by `ada`.",
        "```text\ndig answers\n```",
        "`runbooks/orders.md`, characters 10 to 94, version 1:",
    ):
        assert expected in text
    assert "**Not recorded:** the cause." not in text
    assert "**Not recorded:** the job." in text


@both
def test_every_gap_is_marked(form: DraftForm) -> None:
    bare = records(findings=None, context=None, error_message=None, ended_at=None)
    text = draft(bare, form)
    gaps = ["the cause.", "the error message.", "the job.", "the systems.", "when it ended.", "who owns the job."]
    gaps += ["how to verify that the fix works.", "a document that was cited."]
    gaps += {
        DraftForm.POSTMORTEM: ["who was affected.", "what was tried.", "what fixed it."],
        DraftForm.RUNBOOK: ["a fix that worked.", "how to tell this cause from others before anything is changed."],
    }[form]
    for gap in gaps:
        assert f"**Not recorded:** {gap}" in text


def test_a_recovery_that_was_only_observed_is_not_called_the_fix() -> None:
    text = draft(records(attempt(1, "succeeded", evidence="observed", by="lineage")), DraftForm.POSTMORTEM)
    assert "**Not recorded:** whether it was the cause of the recovery" in text


def test_an_attempt_that_waits_for_its_outcome_is_not_called_reported() -> None:
    text = draft(records(attempt(1, "unknown", decided_at=None)), DraftForm.POSTMORTEM)
    assert "Proposed by `ada`, without an outcome yet:" in text
    assert "Outcome: " not in text


def test_attempts_in_shadow_are_left_out() -> None:
    assert "thing 1" not in draft(records(attempt(1, "succeeded", shadow=True)), DraftForm.RUNBOOK)


def test_a_runbook_puts_the_fix_before_failed_attempts() -> None:
    text = draft(records(attempt(1, "failed"), attempt(2, "succeeded")), DraftForm.RUNBOOK)
    assert text.index("## Fix") < text.index("thing 2") < text.index("## Did not help") < text.index("thing 1")


@both
@settings(max_examples=40)
@given(st.lists(TEXTS | st.just(EVIL), min_size=8, max_size=8))
def test_texts_of_others_are_inert_in_a_draft(form: DraftForm, given_texts: list[str]) -> None:
    one, two, three, four, five, six, seven, eight = (text or "x" for text in given_texts)
    fix = attempt(1, "succeeded", tried=one, note=two, cause=three, verification=four, by=five, constraints=[six])
    action = Action.model_validate(
        {"action_id": "x", "task_id": "t", "agent": "a", "kind": "k", "reasoning": seven, "at": AT}
    )
    context = {"owner": eight, "failed_at": one, "log_url": two, "changed": [{"what": three, "after": four}]}
    context |= {"affected": [{"namespace": five, "name": six, "failed_at": seven}]}
    more = {"title": one, "description": two, "error_message": three, "context": context, "systems": [four]}
    text = draft(records(fix, actions=(action,), **more), form)
    assert [line for line in outside(text) if not GENERATED.fullmatch(line) or "//" in line] == []


def test_the_command_writes_a_new_file(api: ScriptedApi, tmp_path: Any) -> None:
    drafts = [(200, {"task_id": "t1", "form": form, "markdown": f"# {form}\n"}) for form in ("postmortem", "runbook")]
    api.on("GET /v1/tasks/t1/draft", *drafts, drafts[0])
    words = ["lessons", "draft", "t1", "--project", "orders", *api.options()]
    shown = CliRunner().invoke(app, words)
    assert shown.stdout == "# postmortem\n"
    page = tmp_path / "draft.md"
    written = CliRunner().invoke(app, [*words, "--runbook", "-o", str(page)])
    assert written.exit_code == 0, written.output
    assert page.read_text() == "# runbook\n"
    again = CliRunner().invoke(app, [*words, "-o", str(page)])
    assert (again.exit_code, "exists" in again.stderr) == (1, True)
    assert [asked.params["form"] for asked in api.asked] == ["postmortem", "runbook", "postmortem"]
    assert CliRunner().invoke(app, [*words, "--runbook", "--postmortem"]).exit_code == 2


async def test_a_draft_is_made_of_a_task_that_ended_and_says_when_it_has_not(front: RunningFront) -> None:
    for state in ("working", "completed"):
        put_task(front, "t1", state, kind="troubleshoot", error_message="OSError: disk full")
        await front.me.post("/v1/tasks", json={"kind": "troubleshoot", "description": "d", "task_id": "t1"})
        for number in range(3):
            body = attempt(number, "failed").model_copy(update={"task_id": "t1", "project": PROJECT})
            front.house.put("attempts", f"a{number}", body.model_dump(mode="json", exclude_none=True))
        found = (await front.me.get("/v1/tasks/t1/draft", params={"form": "runbook"})).json()
        assert (found["task_id"], found["form"]) == ("t1", "runbook")
        assert ("## Symptom" in found["markdown"], "thing 2" in found["markdown"]) == (True, True)
        assert ("has not ended" in found["markdown"]) == (state == "working")
    assert (await front.me.get("/v1/tasks/t1/draft")).json()["markdown"].startswith("# Postmortem: ")
    assert (await front.me.get("/v1/tasks/t1/draft", params={"form": "poem"})).status_code == 422
    assert (await front.me.get("/v1/tasks/nothing/draft")).status_code == 404
    async with front.as_principal("reporter", "report") as reporter:
        assert (await reporter.get("/v1/tasks/t1/draft")).status_code == 403

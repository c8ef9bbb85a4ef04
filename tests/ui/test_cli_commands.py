"""Commands: what they ask of the API, what they print for people and programs, and how they end."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from ui.cli_data import INCIDENT, answered, escalated, incident
from ui.cli_server import TOKEN, ScriptedApi
from ui.command_runner import run

from counterpoint.cli.task_requests import ERROR_CHARS
from counterpoint.guard.capabilities import Grant, Keyring, SigningKey, mint, revocation_ids
from counterpoint.proto.attempts import ReportOutcome
from counterpoint.proto.tasks import SubmitTask


def test_submit_sends_all_options_and_prints_the_task_id(api: ScriptedApi, tmp_path: Path) -> None:
    api.on("POST /v1/tasks", (202, incident(state="submitted")))
    error = tmp_path / "error.txt"
    error.write_text("it broke")
    result = run(
        *("submit", "troubleshoot", "-", "--error-file", str(error), "--job", "s3://lake/ns/fetch_orders"),
        *("--system", "dns", "--system", "ldap", "--idempotency-key", "k1", "-p", "orders", *api.options()),
        *("--autonomy", "milestone", "--budget", "2.50", "--session", "night-shift"),
        given="The import fails",
    )
    assert (result.exit_code, result.stdout) == (0, f"{INCIDENT}\n"), result.output
    (asked,) = api.asked
    assert asked.body == {
        "kind": "troubleshoot",
        "description": "The import fails",
        "error_message": "it broke",
        "systems": ["dns", "ldap"],
        "autonomy": "milestone",
        "budget": {"usd": "2.50"},
        "session_id": "night-shift",
        "target": {"job": {"namespace": "s3://lake/ns", "name": "fetch_orders"}},
        "project": "orders",
    }
    assert asked.headers["idempotency-key"] == "k1"
    assert asked.headers["authorization"] == f"Bearer {TOKEN}"


def test_submit_takes_a_short_error_and_a_priority(api: ScriptedApi, tmp_path: Path) -> None:
    api.on("POST /v1/tasks", (202, incident(state="submitted")))
    given = ("submit", "troubleshoot", "x", "--error", "disk full", *api.options())
    assert run(*given, "--priority", "urgent").exit_code == 0
    (asked,) = api.asked
    assert (asked.body["error_message"], asked.body["priority"]) == ("disk full", "urgent")
    assert "--priority is one of low" in run(*given, "--priority", "soon").output
    (tmp_path / "error.txt").write_text("it broke")
    refused = run(*given, "--error-file", str(tmp_path / "error.txt"))
    assert (refused.exit_code, "either --error or --error-file" in refused.output) == (2, True)


@pytest.mark.parametrize("amount", ["two", "-1", "Infinity", ""])
def test_a_budget_that_is_no_amount_is_refused_before_anything_is_sent(api: ScriptedApi, amount: str) -> None:
    result = run("submit", "plan", "x", f"--budget={amount}", *api.options())
    assert (result.exit_code, "--budget takes an amount in US dollars" in result.output, api.asked) == (2, True, [])


def test_an_unknown_autonomy_is_refused_before_anything_is_sent(api: ScriptedApi) -> None:
    result = run("submit", "plan", "x", "--autonomy", "full", *api.options())
    assert (result.exit_code, "--autonomy is one of supervised" in result.output, api.asked) == (2, True, [])


@pytest.mark.parametrize("words", [["submit", "plan", "x"], ["ask", "x", "--no-wait"]])
def test_a_request_is_retried_with_the_same_idempotency_key(
    api: ScriptedApi, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("counterpoint.cli.api._RETRY_S", 0.01)
    away = (503, {"title": "Service Unavailable", "status": 503})
    api.on("POST /v1/tasks", away, away, (202, incident(state="submitted")))
    result = run(*words, *api.options())
    assert (result.exit_code, result.stdout) == (0, f"{INCIDENT}\n"), result.output
    assert len(api.asked) == 3
    assert len({asked.headers["idempotency-key"] for asked in api.asked}) == 1
    run(*words, *api.options())
    assert api.asked[3].headers["idempotency-key"] != api.asked[0].headers["idempotency-key"]


def test_a_request_fails_when_the_api_stays_unavailable(api: ScriptedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("counterpoint.cli.api._PATIENCE_S", 0.0)
    monkeypatch.setattr("counterpoint.cli.api._RETRY_S", 0.01)
    api.on("POST /v1/tasks", (503, {"title": "Service Unavailable", "status": 503}))
    result = run("submit", "plan", "x", *api.options())
    assert (result.exit_code, "Service Unavailable" in result.stderr) == (1, True)


@pytest.mark.parametrize("words", [["submit", "troubleshoot", "x"], ["outcome", "t", "failed"]])
def test_an_error_that_is_larger_than_a_message_takes_is_not_sent(
    api: ScriptedApi, tmp_path: Path, words: list[str]
) -> None:
    SubmitTask(kind="troubleshoot", description="x", error_message="x" * ERROR_CHARS)
    ReportOutcome(task_id="t", outcome="failed", error_message="x" * ERROR_CHARS)
    file = tmp_path / "import.log"
    file.write_text("x" * (ERROR_CHARS + 1))
    result = run(*words, "--error-file", str(file), *api.options())
    assert (result.exit_code, api.asked) == (2, [])
    assert f"{file} contains 16001 characters; the limit is 16000" in result.stderr
    assert "counterpoint ingest" in result.stderr


def test_submit_names_unknown_fields_on_stderr(api: ScriptedApi) -> None:
    api.on("POST /v1/tasks", (202, incident(state="submitted", ignored=["descripton"])))
    result = run("submit", "plan", "x", *api.options())
    assert "descripton" in result.stderr
    assert "descripton" not in result.stdout


@pytest.mark.parametrize(
    ("task", "code"),
    [(answered(), 0), (incident(), 4), (answered(state="failed"), 1), (answered(state="cancelled"), 1)],
)
def test_waiting_ends_with_the_code_of_the_task(api: ScriptedApi, task: dict[str, Any], code: int) -> None:
    api.on("POST /v1/tasks", (202, task | {"state": "submitted"}))
    api.on(f"GET /v1/tasks/{task['task_id']}", (200, task | {"state": "working"}), (200, task))
    result = run("submit", "troubleshoot", "x", "--wait", "--json", *api.options())
    assert result.exit_code == code
    assert json.loads(result.stdout) == task
    assert [int(asked.params["wait"]) for asked in api.asked[1:]] == [30, 30]


def test_a_wait_that_takes_too_long_fails_and_says_how_to_look_again(api: ScriptedApi) -> None:
    api.on("POST /v1/tasks", (202, incident(state="submitted")))
    api.on(f"GET /v1/tasks/{INCIDENT}", (200, incident(state="working", waiting_for=None)))
    result = run("submit", "troubleshoot", "x", "--wait", "--timeout", "1", *api.options())
    assert result.exit_code == 1
    assert f"; check again with `counterpoint show {INCIDENT} --project orders --url {api.url}`" in result.stderr
    assert TOKEN not in result.stderr


def test_ask_prints_the_answer_with_its_citations(api: ScriptedApi) -> None:
    api.on("POST /v1/tasks", (202, answered(state="submitted")))
    api.on("GET /v1/tasks/question-1", (200, answered()))
    result = run("ask", "Who owns finance_daily?", *api.options())
    assert result.exit_code == 0
    assert "team-finance [1]" in result.stdout
    assert "[1] ownership.md, characters 5 to 17" in result.stdout


def test_a_question_may_continue_a_session(api: ScriptedApi) -> None:
    api.on("POST /v1/tasks", (202, answered(state="submitted")))
    assert run("ask", "And since when?", "--session", "s1", "--no-wait", *api.options()).exit_code == 0
    assert api.asked[0].body == {"kind": "question", "description": "And since when?", "session_id": "s1"}
    assert run("ask", "And since when?", "--session", "a b", "--no-wait", *api.options()).exit_code == 2


def test_an_outcome_and_an_override_say_all_that_was_given(api: ScriptedApi) -> None:
    api.on(f"POST /v1/tasks/{INCIDENT}/outcome", (202, {"task_id": INCIDENT}))
    api.on(f"POST /v1/tasks/{INCIDENT}/override", (202, {"task_id": INCIDENT}))
    first = run("outcome", INCIDENT, "failed", "--attempt", "2", "--note", "no change", "-p", "orders", *api.options())
    second = run(
        *("override", INCIDENT, "Look at the firewall", "--reason", "DNS is well", "--constraint", "no restart"),
        *("--confidence-override", *api.options()),
    )
    assert (first.exit_code, second.exit_code) == (0, 0)
    told, given = api.asked
    assert told.params == {"project": "orders"}
    assert told.body == {"outcome": "failed", "attempt": 2, "note": "no change"}
    assert given.body == {
        "instruction": "Look at the firewall",
        "reasoning": "DNS is well",
        "constraints": ["no restart"],
        "confidence_override": True,
    }


CREDITED = "the proposal is credited with the success"
NOT_LEARNED = "without it nothing is learned"


@pytest.mark.parametrize(
    ("task", "options", "said", "unsaid"),
    [
        (incident(), ["--note", "restarted it"], CREDITED, NOT_LEARNED),
        (incident(shadow=True), ["--note", "restarted it"], "noted", CREDITED),
        (escalated(proposal=None), ["--note", "restarted it"], "noted", CREDITED),
        (escalated(proposal=None), [], NOT_LEARNED, CREDITED),
        (escalated(proposal="> Restart it"), [], "noted", NOT_LEARNED),
        (incident(), [], "noted", NOT_LEARNED),
    ],
)
def test_a_success_is_credited_to_a_proposal_only_if_there_is_one(
    api: ScriptedApi, task: dict[str, Any], options: list[str], said: str, unsaid: str
) -> None:
    api.on(f"GET /v1/tasks/{INCIDENT}", (200, task))
    api.on(f"POST /v1/tasks/{INCIDENT}/outcome", (202, {"task_id": INCIDENT}))
    result = run("outcome", INCIDENT, "succeeded", *options, *api.options())
    shown = result.stdout + result.stderr
    assert (result.exit_code, said in shown, unsaid in shown) == (0, True, False)


def test_who_may_not_read_a_task_may_report_its_outcome(api: ScriptedApi) -> None:
    api.on(f"GET /v1/tasks/{INCIDENT}", (403, {"title": "Forbidden", "status": 403}))
    api.on(f"POST /v1/tasks/{INCIDENT}/outcome", (202, {"task_id": INCIDENT}))
    result = run("outcome", INCIDENT, "succeeded", "--note", "restarted it", *api.options())
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["outcome", INCIDENT, "failed"],
        ["override", INCIDENT, "Look at the firewall", "--reason", "DNS is well"],
        ["cancel", INCIDENT],
    ],
)
def test_a_report_on_an_ended_task_fails_and_says_so(api: ScriptedApi, arguments: list[str]) -> None:
    reply = {"task_id": INCIDENT, "state": "completed", "late": True}
    api.on(f"POST /v1/tasks/{INCIDENT}/{arguments[0]}", (202, reply))
    result = run(*arguments, *api.options())
    assert (result.exit_code, result.stdout) == (1, f"{INCIDENT} has ended (completed): no effect\n")
    programs = run(*arguments, "--json", *api.options())
    assert (programs.exit_code, json.loads(programs.stdout)) == (1, reply)


def test_show_prints_the_card_for_people_and_the_task_for_programs(api: ScriptedApi) -> None:
    api.on(f"GET /v1/tasks/{INCIDENT}", (200, escalated()))
    assert "escalated to calling_llm (repeated_failure)" in run("show", INCIDENT, *api.options()).stdout
    assert json.loads(run("show", INCIDENT, "--json", *api.options()).stdout) == escalated()


def test_a_list_of_dead_letters_names_the_first_problem_of_each(api: ScriptedApi) -> None:
    letter = {
        "at": "2026-11-20T03:00:00Z",
        "state": "dead",
        "code": "refused",
        "subject": "tasks",
        "dead_letter_id": "d1",
    }
    problem = {"field": "receiver pager", "problem": "did not take it: HTTP 410"}
    items = [letter | {"problems": [problem]}, letter | {"dead_letter_id": "d2"}]
    api.on("GET /v1/dead-letters", (200, {"items": items, "next_cursor": None}))
    shown = run("dead-letters", "list", *api.options()).stdout
    assert "receiver pager: did not take it: HTTP 410" in " ".join(shown.split())


def test_what_used_a_memory_is_summed_up_below_its_rows(api: ScriptedApi) -> None:
    row = {"hops": 1, "cited": True, "store": "actions", "id": "a1", "version": 1, "task_id": "t1"}
    items = [row, row | {"version": 2}, row | {"id": "a2", "task_id": "t2"}, row | {"store": "chunks", "task_id": None}]
    api.on("GET /v1/blast-radius", (200, {"items": items, "truncated": False}))
    *_, last = run("blast-radius", "--memory", "runbook.md", *api.options()).stdout.splitlines()
    assert last == "2 of actions, 1 of chunks; 2 tasks: t1, t2"


def test_a_blast_radius_names_the_namespaces_of_its_jobs_and_data_sets(api: ScriptedApi) -> None:
    row = {"hops": 1, "edge": "data", "kind": "job", "namespace": "nightly", "name": "load", "owner": None}
    api.on("GET /v1/jobs/ns/job/blast-radius", (200, {"downstream": [row]}))
    heads, only = run("blast-radius", "ns/job", *api.options()).stdout.splitlines()
    assert (heads.split(), only.split()) == (
        ["hops", "by", "kind", "namespace", "name", "owner"],
        ["1", "data", "job", "nightly", "load"],
    )


def test_lists_follow_pages_up_to_the_limit(api: ScriptedApi) -> None:
    api.on(
        "GET /v1/tasks",
        (200, {"items": [incident()], "next_cursor": "7"}),
        (200, {"items": [answered()], "next_cursor": "3"}),
    )
    result = run("tasks", "--state", "input_required", "-n", "2", "--json", *api.options())
    assert [task["kind"] for task in json.loads(result.stdout)["items"]] == ["troubleshoot", "question"]
    assert [asked.params.get("cursor") for asked in api.asked] == [None, "7"]
    assert {asked.params["state"] for asked in api.asked} == {"input_required"}


def test_a_token_of_a_new_principal_is_all_that_stdout_holds(api: ScriptedApi) -> None:
    api.on("POST /v1/principals", (201, {"principal": {"name": "airflow"}, "token": "secret"}))
    result = run("principal", "create", "airflow", "--role", "submit", "--in", "orders", *api.options())
    assert (result.exit_code, result.stdout) == (0, "secret\n")
    assert api.asked[0].body == {"name": "airflow", "kind": "system", "roles": ["submit"], "projects": ["orders"]}
    ends = "2026-12-24T18:00:00Z"
    run("principal", "create", "deputy", "--kind", "person", "--role", "approve", "--in", "orders",
        "--until", ends, *api.options())  # fmt: skip
    assert api.asked[1].body["expires_at"] == ends


def test_a_broken_audit_log_fails(api: ScriptedApi) -> None:
    report = {
        "ok": False,
        "commits": 3,
        "refusals": 0,
        "records": 5,
        "head": {"position": 3, "root": "00"},
        "checkpoint": None,
        "checkpoints": 0,
        "window": {"from": 0, "to": 3, "waiting": 1},
        "key": "origin+00+AA",
        "broken": ["leaf 2 was changed"],
        "broken_count": 1,
    }
    api.on("GET /v1/audit/verify", (200, report), (200, report | {"ok": True, "broken": [], "broken_count": 0}))
    broken = run("verify", *api.options())
    assert broken.exit_code == 1
    assert "leaf 2 was changed" in broken.stdout
    assert "the last 4 leaves" in broken.stdout
    assert run("verify", *api.options()).exit_code == 0


@pytest.mark.parametrize(
    ("options", "target"),
    [
        ([], None),
        (["--job", "ns/with/load"], {"job": {"namespace": "ns/with", "name": "load"}}),
        (["--run", "r1"], {"run_id": "r1"}),
        (["--dataset", "db/public.orders"], {"dataset": {"namespace": "db", "name": "public.orders"}}),
        (["--dataset", "s3://lake/day/1.csv"], {"dataset": {"namespace": "s3://lake", "name": "day/1.csv"}}),
    ],
)
def test_a_job_a_run_or_a_data_set_is_the_target(
    api: ScriptedApi, options: list[str], target: dict[str, Any] | None
) -> None:
    api.on("POST /v1/tasks", (202, incident(state="submitted")))
    assert run("submit", "troubleshoot", "It fails", *options, *api.options()).exit_code == 0
    (asked,) = api.asked
    assert (asked.body or {}).get("target") == target
    assert run("submit", "troubleshoot", "It fails", "--dataset", "orders", *api.options()).exit_code == 2


@pytest.mark.parametrize(
    ("options", "said", "unsaid"),
    [
        ([], "confidence    medium", "0.66"),
        (["--verbose"], "0.66, medium", "### "),
        (["--format", "markdown"], "### fetch_orders failed", "────"),
        (["--format", "terminal"], "────\nfetch_orders failed", "### "),
        (["--format", "plain"], "fetch_orders failed", "────"),
    ],
)
def test_show_prints_the_card_as_it_is_asked_for(api: ScriptedApi, options: list[str], said: str, unsaid: str) -> None:
    api.on(f"GET /v1/tasks/{INCIDENT}", (200, incident()))
    shown = run("show", INCIDENT, *options, *api.options())
    assert shown.exit_code == 0, shown.output
    assert said in shown.stdout
    assert unsaid not in shown.stdout
    assert run("show", INCIDENT, "--format", "html", *api.options()).exit_code == 2


def test_a_stolen_capability_is_revoked_in_its_project_by_its_id_alone(api: ScriptedApi) -> None:
    nothing = {"rights": frozenset(), "sends": frozenset(), "agents": frozenset(), "clearance": 1}
    ends = datetime(2026, 1, 2, tzinfo=UTC)
    grant = Grant(audience="developer", project="orders", task="t-1", message="m-1", expires_at=ends, **nothing)
    token = mint(Keyring([SigningKey.generate(1)]), grant)
    told = (201, {"revocation_id": revocation_ids(token)[0]})
    api.on("POST /v1/revocations", told, told)
    for given, words in ((token, ["-"]), (None, [revocation_ids(token)[0], "--project", "orders"])):
        done = run("revoke", *words, "--reason", "stolen", *api.options(), given=given)
        assert done.exit_code == 0, done.output
    for asked in api.asked:
        assert asked.body == {"revocation_id": revocation_ids(token)[0], "reason": "stolen"}
        assert asked.params == {"project": "orders"}
        assert token not in str(asked)
    assert run("revoke", "no token", "--reason", "x", *api.options()).exit_code == 2


def test_console_prints_a_link_whose_code_no_server_sees(api: ScriptedApi) -> None:
    api.on("POST /v1/sign-in-codes", *[(201, {"code": "c0de", "valid_s": 300})] * 2)
    result = run("console", INCIDENT, "-p", "orders", *api.options())
    address = f"{api.url}/#code=c0de&project=orders&task={INCIDENT}"
    assert result.stdout.splitlines() == [address, "The link signs a browser in once, within 5 minutes."]
    shown = json.loads(run("console", "--json", *api.options()).stdout)
    assert shown == {"url": f"{api.url}/#code=c0de", "valid_s": 300}

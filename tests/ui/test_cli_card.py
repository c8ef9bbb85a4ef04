"""The card and the tree: what they show of a task and its line."""

import re
from typing import Any

import pytest
from ui.card_texts import card_text, flat
from ui.cli_data import INCIDENT, RUNBOOK, answered, escalated, incident

from counterpoint.card.content import card
from counterpoint.card.render import Format, render
from counterpoint.proto.findings import Downstream, Findings
from counterpoint.proto.tasks import Task


@pytest.mark.parametrize("form", [Format.PLAIN, Format.TERMINAL])
def test_a_command_can_be_copied_from_a_narrow_card(form: Format) -> None:
    lines = render(card(Task.model_validate(incident())), form, 60).splitlines()
    command = f"counterpoint outcome {INCIDENT} succeeded --attempt 1 --project orders"
    assert f"report        {command}" in lines
    assert all(len(line) <= 60 for line in lines if "counterpoint " not in line and "http://" not in line)


def test_a_warning_below_the_steps_of_a_quote_is_no_part_of_the_last_step() -> None:
    proposal = "From a.md [1]:\n\n> 1. Look at the disk.\n> 2. Delete the spool.\n>\n> Do not restart\n> the gateway."
    lines = card_text(incident(proposal=proposal)).splitlines()
    after = next(n for n, line in enumerate(lines) if line.endswith("> 2. Delete the spool."))
    assert [line.strip() for line in lines[after + 1 : after + 3]] == [">", "> Do not restart the gateway."]


@pytest.mark.parametrize("kind", ["plan", "develop"])
def test_a_job_without_a_reported_failure_has_not_failed(kind: str) -> None:
    lines = card_text(incident(kind=kind, target=None, context={}, error_message=None)).splitlines()
    assert any(line.startswith("asked ") for line in lines)
    assert not any(line.startswith("failed ") for line in lines)


def test_one_try_is_no_tries() -> None:
    body = incident()
    body["context"] |= {"tries": 1, "retries": None}
    assert "1 try, at" in flat(card_text(body))


def test_the_card_of_an_incident_says_all_that_a_person_would_look_up() -> None:
    lines = flat(card_text(incident()))
    for said in (
        "fetch_orders failed: could not resolve ldap.internal",
        "attempt 1 waits for its outcome",
        INCIDENT,
        "DNS lookup timed out after 5 s (resolver 10.20.0.2:53)",
        "3 of 3 tries, the last at 2026-11-17 05:30:12 UTC",
        "log http://airflow.example/log?try=3",
        "owner team-ingest",
        "directly job clean_orders team-ingest",
        "no: the search for earlier attempts found no similar one",
        "1 document about it",
        f"> {RUNBOOK}",
        "runbooks/orders.md, characters 10 to 94",
        "medium: check it before you act; 2 trusted sources about it, the best matches closely",
        "Restart the resolver's cache.",
        "only two sources",
        f"report counterpoint outcome {INCIDENT} succeeded --attempt 1 --project orders or failed, or partial",
    ):
        assert said in lines


@pytest.mark.parametrize("code", ["no_provider", "no_model"])
def test_the_text_of_a_stop_for_want_of_a_provider_is_a_plan(code: str) -> None:
    plan = "# Provider plan: Acme Ledger\n\n## Open points\n\n- Who owns Acme Ledger?"
    escalation = {"to": "calling_llm", "code": code}
    lines = card_text(incident(kind="plan", proposal=plan, waiting_for="documents", escalation=escalation))
    assert re.search(r"^plan +# Provider plan: Acme Ledger$", lines, re.MULTILINE), lines
    assert "last proposed" not in lines


def test_a_long_description_is_folded() -> None:
    for description in ("\n".join(f"row {number}" for number in range(1000)), "word " * 3000):
        task = incident(description=description, context=None)
        short, whole = card_text(task), card_text(task, verbose=True)
        assert len(short) < 5000 < len(whole)
        assert f"{len(description.strip())} characters in total, shown with --verbose" in flat(short)
    assert "row 29" in card_text(incident(description="\n".join(f"row {number}" for number in range(30)), context=None))


def test_a_verbose_card_shows_scores_and_searches() -> None:
    score = "0.66, medium 0.4 × similarity 0.85 + 0.3 × 2/5 sources + 0.2 × provider (not applicable, counts as yes)"
    escalation = {"to": "human", "code": "low_confidence", "searched_for": ["documents about: the resolver"]}
    caveats = incident()["findings"] | {"caveats": ["confidence is medium (0.66)"]}
    task = incident(waiting_for="override", escalation=escalation, findings=caveats)
    verbose, short = flat(card_text(task, verbose=True)), flat(card_text(task))
    for said in (score, "searched documents about: the resolver", "confidence is medium (0.66)"):
        assert said in verbose
        assert said not in short
    assert "0.66" not in short


def test_a_quote_in_the_proposal_is_not_repeated() -> None:
    assert card_text(incident()).count("dig @RESOLVER") == 1
    without = card_text(incident(proposal=None))
    assert f"“{RUNBOOK}”" in without
    assert "runbooks/orders.md, characters 10 to 94" in without


def test_an_escalated_card_lists_attempts_with_their_authors_and_how_to_supply_the_need() -> None:
    lines = flat(card_text(escalated(proposal=None)))
    assert "escalated to calling_llm (repeated_failure), waits for override" in lines
    assert f'counterpoint outcome {INCIDENT} succeeded --note "WHAT FIXED IT" --project orders' in lines
    assert "tried in this task: 2 attempts, 2 failed" in lines
    assert "2026-11-17 failed (reported), developer: “thing 1”" in lines
    how = f'counterpoint override {INCIDENT} "INSTRUCTION" --reason "WHY" --project orders'
    assert f"decision: how to go on {how}" in lines


def test_an_escalated_card_with_an_offer_says_how_to_report_that_it_helped() -> None:
    lines = flat(card_text(escalated(proposal="Unlock the user.")))
    assert f"report counterpoint outcome {INCIDENT} succeeded --project orders or failed" in lines
    assert "--by something-else" in lines


def test_an_escalated_question_does_not_ask_for_a_fix() -> None:
    assert "counterpoint outcome" not in card_text(escalated(kind="question"))


def test_a_card_of_a_held_proposal_says_who_decides_until_when_and_how() -> None:
    approval = {"approval_id": "a1", "category": "proposal", "artifact_sha256": "ab" * 32}
    approval |= {"expires_at": "2026-11-18T06:00:00Z"}
    lines = flat(card_text(incident(waiting_for="approval", approval=approval, proposal=None)))
    assert "waits for approval" in lines
    assert "approval: a person decides on the proposal before 2026-11-18 06:00:00 UTC" in lines
    assert f"counterpoint approvals --task {INCIDENT} --project orders" in lines
    assert "counterpoint outcome" not in lines


@pytest.mark.parametrize(
    ("repeats", "said"),
    [
        ({"count": 1, "first_at": "2026-11-17T05:30:00Z", "last_at": "2026-11-17T05:30:00Z"}, "first failure"),
        (
            {"count": 3, "first_at": "2026-10-28T05:30:00Z", "last_at": "2026-11-17T05:30:00Z"},
            "third time in 20 days, first on 2026-10-28",
        ),
        (
            {"count": 22, "first_at": "2026-11-17T02:30:00Z", "last_at": "2026-11-17T05:30:00Z"},
            "22nd time in 3 hours, first on 2026-11-17",
        ),
        ({"count": 2}, "second time"),
        ("often", None),
    ],
)
def test_the_card_says_how_often_a_failure_occurred(repeats: Any, said: str | None) -> None:
    lines = flat(card_text(incident(context={"repeats": repeats})))
    assert said in lines if said else "first on" not in lines


def test_a_new_error_of_a_job_that_failed_before_is_not_its_first_failure() -> None:
    context = {"repeats": {"count": 1}, "previous_incident": "incident-fedcba9876543210fedcba98"}
    assert "first failure with this error" in flat(card_text(incident(context=context)))


def rests(number: int) -> list[dict[str, Any]]:
    return [
        {
            "kind": "job" if one % 2 else "dataset",
            "namespace": "n",
            "name": f"thing{one:02}",
            "hops": 1 + one % 3,
            "edge": "data",
            "owner": f"team{one % 4}" if one % 5 else None,
        }
        for one in range(number)
    ]


def test_downstream_is_sorted_by_impact_and_folded_above_ten() -> None:
    findings = incident()["findings"] | {"downstream": rests(24)}
    lines = card_text(incident(findings=findings)).splitlines()
    listed = [line for line in lines if re.search(r"thing\d", line)]
    assert len(listed) == 10
    direct = [line for line in listed if "directly" in line]
    assert listed[: len(direct)] == direct
    unowned = ["no owner" in line for line in direct]
    assert unowned == sorted(unowned)
    assert any(line.strip().startswith("and 14 more, of team") for line in lines)
    assert "12 jobs and 12 data sets of 4 owners" in flat("\n".join(lines))
    assert len(re.findall(r"thing\d", card_text(incident(findings=findings), verbose=True))) == 24


def test_downstream_claimed_by_a_caller_is_marked_and_stands_last() -> None:
    row = {"kind": "job", "namespace": "n", "name": "billing", "hops": 1, "edge": "data", "owner": "ceo"}
    downstream = [row | {"claimed_by": "caller"}, *rests(2)]
    lines = card_text(incident(findings=incident()["findings"] | {"downstream": downstream})).splitlines()
    listed = [n for n, line in enumerate(lines) if re.search(r"billing|thing\d", line)]
    assert "stated by counterpoint/lineage" in lines[listed[-1] + 1]


def test_a_row_that_is_too_wide_continues_below_and_widens_no_column() -> None:
    names = ("a", "recommendations.execute_insert_into_hadoop_fs_relation_command.s3_recommendations_daily")
    rows = [{"kind": "job", "namespace": "n", "name": name, "hops": 1, "edge": "data"} for name in names]
    lines = card_text(incident(findings=incident()["findings"] | {"downstream": rows})).splitlines()
    short, wide = (next(n for n, line in enumerate(lines) if line.endswith(end)) for end in ("no owner", names[1]))
    assert lines[short].split("directly")[1] == "  job  a  no owner"
    assert [line.strip() for line in lines[wide : wide + 2]] == [names[1], "no owner"]


def test_a_statement_of_a_model_in_the_list_is_not_counted_beside_it() -> None:
    names = ("model.shop.fct", "model.shop.fct.sql.1", "model.shop.other.sql.1")
    rows = [{"kind": "job", "namespace": "dbt", "name": name, "hops": 1, "edge": "data"} for name in names]
    text = card_text(incident(findings=incident()["findings"] | {"downstream": rows}))
    assert [name for name in names if re.search(rf"{re.escape(name)}\s", text)] == [names[0], names[2]]


def test_parts_and_the_whole_of_a_merge_are_shown() -> None:
    part = {"task_id": "incident-2", "namespace": "n", "name": "load", "last_at": "2026-11-17T06:00:00Z"}
    rows = [part | {"count": 2, "over": False}, part | {"task_id": "incident-3", "count": 1, "over": True}]
    lines = flat(card_text(incident(context={"merged": rows})))
    assert "merged n/load 2 flows last failed at 2026-11-17 06:00:00 UTC incident-2" in lines
    assert "n/load 1 flow works again incident-3" in lines
    repeats = {"count": 4, "first_at": "2026-11-15T06:00:00Z", "last_at": "2026-11-17T06:00:00Z"}
    lines = flat(card_text(incident(context={"merged": rows, "repeats": repeats})))
    assert "failed 4 failures in 2 days with the 2 incidents merged into it, first on 2026-11-15" in lines
    assert "fourth time" not in lines
    lines = flat(card_text(incident(context={"merged": rows[:1], "repeats": repeats})))
    assert "failed 4 failures in 2 days with the incident merged into it, first on 2026-11-15" in lines
    lines = flat(card_text(incident(context={"merged_into": "incident-1", "merged": []})))
    assert "merged merged into incident-1, which is handled instead" in lines
    assert "merged" not in flat(card_text(incident(context={"merged_into": "", "merged": []})))


def test_affected_jobs_that_were_not_listed_as_downstream_are_counted_in_the_impact() -> None:
    row = {"kind": "job", "namespace": "n", "name": "j0", "hops": 1, "edge": "data"}
    findings = incident()["findings"] | {"downstream": [row]}
    affected = [{"namespace": "n", "name": f"j{one}", "failed_at": "2026-11-17T06:00:00Z"} for one in range(3)]
    lines = flat(card_text(incident(context={"affected": affected}, findings=findings)))
    assert "impact directly job j0 no owner besides 2 jobs under affected" in lines
    lines = flat(card_text(incident(context={"affected": affected[:1]}, findings=findings)))
    assert "besides" not in lines


def test_changes_and_affected_jobs_are_listed() -> None:
    changed = [
        {"what": "code", "before": "1", "after": "2", "url": "https://git.example/compare/1...2"},
        {"what": "schema", "name": "raw.a", "before": "x INT"},
        {"what": "image", "after": "etl:3"},
        {"what": "upstream"},
        "nonsense",
    ]
    affected = [{"namespace": "n", "name": f"j{one}", "failed_at": "2026-11-17T06:00:00Z"} for one in range(12)]
    owned = [{"kind": "job", "namespace": "n", "name": "j1", "hops": 1, "edge": "data", "owner": "harbour"}]
    context = {"changed": changed, "affected": affected, "affected_count": 40, "downstream": owned}
    lines = flat(card_text(incident(context=context, findings=None)))
    for said in (
        "changed code 1 → 2 https://git.example/compare/1...2",
        "schema raw.a no longer x INT",
        "image now etl:3",
        "upstream changed",
        "affected 40 failures downstream of it n/j0 failed at 2026-11-17 06:00:00 UTC n/j1 failed at 2026-11-17"
        " 06:00:00 UTC harbour n/j2",
        "and 30 more",
    ):
        assert said in lines
    assert "nonsense" not in lines
    findings = Findings(downstream=tuple(Downstream.model_validate(row) for row in owned))
    assert "n/j1 failed at 2026-11-17 06:00:00 UTC harbour" in flat(
        card_text(incident(context={"affected": affected}, findings=findings))
    )


def test_a_description_that_is_the_error_is_shown_once() -> None:
    error = "mbedtls_ssl_handshake returned -0x2700"
    card = card_text(incident(context={}, title="No telemetry", description=error, error_message=error))
    assert card.count(error) == 1


def test_without_an_error_the_card_says_which_setting_to_switch_on() -> None:
    silent = {"error_message": "failed without an error message", "context": {"hint": "run it with its logs"}}
    assert "error failed without an error message hint run it with its logs" in flat(card_text(incident(**silent)))


def test_a_long_error_is_its_headline_until_more_is_asked_for() -> None:
    error = "Traceback (most recent call last):\n" + '  File "a.py", line 1, in f\n' * 30 + "ValueError: it broke"
    short, whole = card_text(incident(error_message=error)), card_text(incident(error_message=error), verbose=True)
    assert "a.py" not in short
    assert "ValueError: it broke" in short
    assert "32 lines in total, shown with --verbose" in short
    assert whole.count("a.py") == 30


def test_of_a_long_log_the_beginning_and_the_end_are_shown() -> None:
    error = "exit status 2\n" + "\n".join(f"gain row {n} ok" for n in range(40)) + "\nValueError: 17 dead columns"
    short = flat(card_text(incident(error_message=error)))
    assert "error exit status 2 gain row 0 ok gain row 1 ok … gain row 38 ok gain row 39 ok ValueError: 17" in short
    assert "42 lines in total, shown with --verbose" in short


def test_where_no_document_is_about_it_the_nearest_are_called_the_nearest() -> None:
    escalation = {"to": "calling_llm", "code": "low_confidence", "searched_for": ["documents about " + "x " * 200]}
    lines = flat(card_text(incident(proposal=None, waiting_for="documents", escalation=escalation)))
    assert "no relevant document, the nearest are quoted below" in lines
    assert "nearest “Ask the resolver" in lines


def test_a_stopped_build_shows_its_documents_or_the_nearest_passage() -> None:
    escalation = {"to": "calling_llm", "code": "no_model"}
    given = {"kind": "develop", "proposal": None, "waiting_for": "override", "escalation": escalation}
    assert "1 document about it" in flat(card_text(incident(**given)))
    without = incident()["findings"] | {"next_steps": []}
    assert "nearest “Ask the resolver" in flat(card_text(incident(**given, findings=without)))


def test_a_proposal_is_set_anew_but_its_quotes_lists_and_references_stay_lines() -> None:
    proposal = "From a.md [1]:\n\n> 1. Ask\n>    the resolver.\n> 2. Restart\n> it.\n\n[1] a.md  \n[2] b.md  "
    lines = [line.strip() for line in card_text(incident(proposal=proposal)).splitlines()]
    start = lines.index("do first      From a.md [1]:")
    assert lines[start + 1 : start + 8] == [
        "",
        "> 1. Ask the resolver.",
        "> 2. Restart it.",
        "",
        "[1] a.md",
        "[2] b.md",
        "",
    ]


def test_a_number_that_goes_on_with_a_sentence_begins_no_list() -> None:
    proposal = (
        "> Call the desk, extension\n> 4411. It is staffed since\n> 3. October.\n> 1. Ask.\n> - first\n> 2. Wait."
    )
    lines = card_text(incident(proposal=proposal)).splitlines()
    shown = [line[14:] for line in lines if line[14:].startswith(">")]
    assert shown == ["> Call the desk, extension 4411. It is staffed since 3. October.", "> 1. Ask.", "> - first",
                     "> 2. Wait."]  # fmt: skip


def test_an_offer_is_not_repeated_as_a_next_step() -> None:
    offer = "This looks alike.\n\n> Open port 53."
    findings = incident()["findings"] | {"next_steps": [offer, "Ask the owner."], "likelihood": 0.5}
    escalation = {"to": "human", "code": "low_confidence"}
    lines = card_text(incident(proposal=offer, findings=findings, waiting_for="override", escalation=escalation))
    assert lines.count("Open port 53.") == 1
    assert "may help      This looks alike." in lines
    assert "then          Ask the owner." in lines
    stopped = card_text(incident(proposal=None, findings=findings, waiting_for="documents", escalation=escalation))
    assert stopped.count("Open port 53.") == 1
    assert "may help      This looks alike." in stopped


def test_a_need_is_not_repeated_as_a_next_step() -> None:
    need = {"kind": "outcome", "what": "report what was changed", "how": "counterpoint outcome T succeeded"}
    findings = incident()["findings"] | {"next_steps": [f"{need['what']}: `{need['how']}`", "Ask the owner."]}
    lines = card_text(incident(findings=findings, needs=[need]))
    assert lines.count("report what was changed") == 1
    assert "then          Ask the owner." in lines


def test_a_card_before_any_search_says_not_searched_yet() -> None:
    lines = card_text(incident(findings=None))
    assert "not searched yet" in lines
    assert "found no similar one" not in lines


def test_the_card_of_a_question_is_its_answer() -> None:
    lines = card_text(answered())
    assert "team-finance [1]" in lines
    assert "seen before" not in lines

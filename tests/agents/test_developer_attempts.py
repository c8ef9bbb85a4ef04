"""Earlier attempts are ranked by how they went, and what failed comes back only with a reason (row A8)."""

from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from agents.developer_memory import START, Shelf

from counterpoint.developer.attempts import Tried, lessons, proven, recall, similar, succeeded_before, warnings
from counterpoint.developer.confidence import confidence, terms
from counterpoint.developer.handlers import on_delegated
from counterpoint.developer.passages import passages
from counterpoint.developer.procedures import Procedure, procedures
from counterpoint.developer.proposals import Instruction, propose
from counterpoint.developer.relevance import Hit, calibration, hits
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.memory import Item
from counterpoint.proto.signature import signature
from counterpoint.proto.tasks import OverrideGiven, SubmitTask, TaskDelegated, TaskWorked

TOPIC = calibration().topic
HERE, DIGEST = "task-9", "feedfeedfeedfeed"
QUERY = "the nightly export stops with disk full"
STEPS = (
    "Steps when the nightly export stops with disk full:\n\n1. Empty the folder for old exports.\n2. Double the volume."
)
_number = count(1)


def tried(
    what: str,
    outcome: str = "succeeded",
    evidence: str = "reported",
    *,
    task: str = "task-1",
    digest: str | None = DIGEST,
    cosine: float = 0.9,
    integrity: int = 1,
    **more: str,
) -> Item:
    number = next(_number)
    attempt = Attempt(
        attempt_id=f"attempt-{number}",
        task_id=task,
        project="shop",
        attempt=1,
        description=QUERY,
        error_signature=digest,
        tried=what,
        outcome=outcome,
        evidence=evidence,
        by="developer",
        at=START + timedelta(minutes=number),
        **more,
    )
    return item("attempts", attempt.attempt_id, attempt.model_dump(mode="json"), number, cosine, integrity)


def item(store: str, record_id: str, body: dict[str, object], seq: int, cosine: float, integrity: int) -> Item:
    return Item(
        store=store,
        id=record_id,
        project="shop",
        version=2,
        body=body,
        author="developer",
        label=1,
        integrity=integrity,
        seq=seq,
        at=START,
        scores={"cosine": cosine},
    )


def remembered(*items: Item) -> tuple[Tried, ...]:
    return recall(QUERY, HERE, DIGEST, items, (), TOPIC)


def runbook(text: str = STEPS, integrity: int = 2) -> tuple[Hit, ...]:
    body: dict[str, object] = {"document_id": "d", "source": "export.md", "text": text, "start": 0, "type": "markdown"}
    return hits(QUERY, [item("chunks", "d", body, 1, 0.8, integrity)], TOPIC)


def offered(text: str = STEPS, integrity: int = 2) -> tuple[Procedure, ...]:
    return procedures(QUERY, runbook(text, integrity))


def acts(*items: Item) -> list[str]:
    return [lesson.text for lesson in lessons(remembered(*items))]


def test_reported_success_comes_before_observed_before_partial_before_failure() -> None:
    assert acts(
        tried("reported"),
        tried("observed", "succeeded", "observed"),
        tried("partly", "partial"),
        tried("fail", "failed"),
    ) == ["reported", "observed", "partly", "fail"]


def test_the_same_error_comes_before_a_similar_one() -> None:
    assert acts(tried("similar", digest="other"), tried("same", "succeeded", "observed")) == ["same", "similar"]


def test_of_similar_failures_the_closer_one_comes_first() -> None:
    assert acts(tried("near", digest="a", cosine=0.9), tried("far", digest="b", cosine=0.6)) == ["near", "far"]


def test_what_is_neither_the_same_nor_similar_is_not_recalled() -> None:
    assert remembered(tried("far", digest="other", cosine=0.1), tried("unfinished", "unknown")) == ()
    assert remembered(tried("own", "unknown", task=HERE, digest=None, cosine=0.1))


def test_what_worked_is_proposed_before_any_document_and_cited() -> None:
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


def test_procedure_that_was_tried_in_this_task_is_left_out_whatever_came_of_it() -> None:
    known = lessons(remembered(tried(STEPS, "partial", task=HERE)))
    assert propose(known, offered(), 0.5) is None


def test_a_failure_at_another_error_does_not_count() -> None:
    made = propose(
        lessons(remembered(tried("1. Empty the folder for old exports.", "failed", digest="x"))), offered(), 0.5
    )
    assert made
    assert made.tried == STEPS
    assert "failed" not in made.text


def test_what_failed_and_worked_comes_again_with_its_reason() -> None:
    known = lessons(remembered(tried("Move it."), tried("Move it.", "failed", "observed")))
    made = propose(known, offered(), 0.5)
    assert made
    assert made.tried == "Move it."
    assert made.reason
    assert made.reason in made.text


def test_what_failed_more_than_it_worked_comes_after_the_documents() -> None:
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


async def test_attempts_with_the_same_error_are_found_in_whatever_words() -> None:
    error = "OSError: no space left on device: /mnt/a1"
    shelf = Shelf()
    seen = tried("Move it.", digest=signature("OSError: no space left on device: /mnt/b2").digest)
    shelf.put("attempts", seen.id, {**seen.body, "description": "entirely other words"}, 1)
    shelf.put("tasks", HERE, {"task_id": HERE})
    task = SubmitTask(kind="troubleshoot", description="export", error_message=error)
    message = TaskDelegated(task_id=HERE, project="shop", session_id="s", attempt=1, task=task, lane="investigate")
    commit = await on_delegated(message, shelf.memory("message", HERE))
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


def test_warnings_count_and_quote_what_failed_and_its_error() -> None:
    known = lessons(remembered(tried("Move it.", "failed", outcome_error="disk full"), tried("Move it.", "failed")))
    assert warnings(known)[0] == "attempts at this error have failed twice"
    assert "“Move it.”" in warnings(known)[1]
    assert warnings(lessons(remembered(tried("Move it.")))) == ()


def test_findings_show_outcome_evidence_and_who() -> None:
    (shown,) = similar(remembered(tried("Move it.", "succeeded", "observed", override_by="ada")))
    assert (shown.outcome, shown.evidence, shown.by, shown.score) == ("succeeded", "observed", "ada", 1.0)
    assert similar(remembered(tried("now", "unknown", task=HERE))) == ()


def test_a_success_counts_for_confidence_when_it_is_anothers_and_trusted() -> None:
    assert succeeded_before(remembered(tried("Move it.")), TOPIC)
    assert succeeded_before(remembered(tried("Move it.", digest="other")), TOPIC)
    assert not succeeded_before(remembered(tried("Move it.", "partial")), TOPIC)
    assert not succeeded_before(remembered(tried("Move it.", task=HERE)), TOPIC)
    assert not succeeded_before(remembered(tried("Move it.", integrity=0)), TOPIC)


class TestWhatIsProven:
    """A trusted report of what worked for the same error is a source of row A2, and nothing less is."""

    def band_with(self, *items: Item, found: tuple[Hit, ...] = ()) -> tuple[int, float, str]:
        known = remembered(*items)
        inputs = terms(found, None, succeeded_before(known, TOPIC), TOPIC, proven(known))
        return inputs.rag_hits, inputs.rag_similarity, confidence(inputs).band

    def test_a_trusted_success_for_the_same_error_is_enough_to_propose_with_caveats(self) -> None:
        assert self.band_with(tried("Move it.", integrity=2)) == (1, 1.0, "medium")

    def test_three_different_acts_are_three_sources_and_one_act_that_worked_often_is_one(self) -> None:
        acts = ("Move the export.", "Double the volume.", "Empty the folder.")
        assert self.band_with(*(tried(act, integrity=2) for act in acts)) == (3, 1.0, "high")
        assert self.band_with(*(tried("Move it.", integrity=2) for _ in range(5))) == (1, 1.0, "medium")

    @pytest.mark.parametrize(
        "lesser",
        [
            {"integrity": 1},
            {"integrity": 0},
            {"digest": "other", "integrity": 2},
            {"outcome": "failed", "integrity": 2},
            {"outcome": "partial", "integrity": 2},
            {"evidence": "observed", "integrity": 2},
            {"task": HERE, "integrity": 2},
        ],
    )
    def test_what_is_untrusted_similar_failed_partial_observed_or_of_this_task_lifts_nothing(
        self, lesser: dict[str, Any]
    ) -> None:
        hits_, similarity, reached = self.band_with(tried("Move it.", **lesser))
        assert (hits_, similarity, reached) == (0, 0.0, "low")

    def test_what_failed_for_this_error_more_than_it_worked_is_not_proven(self) -> None:
        failed = [tried("Move it.", "failed", integrity=2) for _ in range(2)]
        assert self.band_with(tried("Move it.", integrity=2), *failed)[0] == 0
        untrusted = [tried("Move it.", "failed", integrity=0) for _ in range(2)]
        assert self.band_with(tried("Move it.", integrity=2), *untrusted)[0] == 1

    def test_a_document_that_says_the_same_is_no_second_source(self) -> None:
        said = "Empty the folder for old exports on the large disk, then start the nightly export once more by hand."
        body = f"# The nightly export stops with disk full\n\n{said}"
        found = runbook(body)
        assert self.band_with(found=found)[0] == 1
        assert self.band_with(tried(said, integrity=2), found=found)[0] == 1
        assert self.band_with(tried("Double the volume.", integrity=2), found=found)[0] == 2

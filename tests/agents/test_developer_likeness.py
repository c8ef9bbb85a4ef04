"""Likeness of an earlier failure: its model and its rules."""

import dataclasses
from typing import Any

import pytest
from agents.developer_memory import START
from agents.known_attempts import DIGEST, HERE, JOB, NOW, QUERY, remembered, tried

from counterpoint.developer.evidence.attempts import AttemptResults, rank_attempts, resemblance
from counterpoint.developer.evidence.failure import Failure, failure_of_attempt, failure_of_task
from counterpoint.developer.evidence.likeness import (
    NO_CAUSE,
    OTHER_CODE,
    OTHER_ENDING,
    RECOGNISED,
    SAME_JOB_SAME_TEMPLATE,
    SAME_MESSAGE,
    SAME_REPORT,
    LikenessModel,
)
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.links import Link, Side
from counterpoint.proto.memory import Item
from counterpoint.proto.signature import signature
from counterpoint.proto.tasks import JobRef, SubmitTask


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

    def test_a_failure_with_another_code_hides_no_one_with_the_same_message(self) -> None:
        message = "The broker refused it, exit code 5"
        task = SubmitTask(kind="troubleshoot", description=QUERY, error_message=message, target={"job": JOB})
        more = {"job": None, "digest": signature(message).digest, "error_message": message, "cosine": 0.2}
        same = tried("Renew the key.", task="task-2", **more)
        other = tried("Empty the disk.", digest=None, cosine=1.0, error_message=message.replace("5", "3"), job=JOB)
        likeness = {one.attempt.tried: one.likeness for one in remembered(same, other, now=failure_of_task(task))}
        assert likeness == {"Renew the key.": SAME_REPORT, "Empty the disk.": OTHER_CODE}

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

"""Proof: which earlier attempts count as sources of confidence."""

from typing import Any

import pytest
from agents.known_attempts import HERE, TOPIC, remembered, runbook, tried

from counterpoint.developer.evidence.lessons import proven_fixes, similar_success
from counterpoint.developer.evidence.likeness import SAME_JOB_SAME_TEMPLATE
from counterpoint.developer.excerpts.relevance import Hit
from counterpoint.developer.policies.confidence import confidence_of, confidence_terms
from counterpoint.proto.memory import Item


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

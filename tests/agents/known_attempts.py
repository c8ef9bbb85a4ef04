"""Attempts, runbooks and failures for the tests of what the developer proposes."""

from datetime import timedelta
from itertools import count
from typing import Any

from agents.developer_memory import START

from counterpoint.developer.evidence.attempts import AttemptResults, EarlierAttempt, rank_attempts
from counterpoint.developer.evidence.calibration import load_calibration
from counterpoint.developer.evidence.failure import Failure
from counterpoint.developer.evidence.lessons import lessons
from counterpoint.developer.evidence.likeness import LikenessModel
from counterpoint.developer.excerpts.relevance import Hit, hits
from counterpoint.developer.policies.procedures import Procedure, procedures
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.links import Link
from counterpoint.proto.memory import Item
from counterpoint.proto.signature import Signature
from counterpoint.proto.tasks import JobRef

TOPIC = load_calibration().topic
HERE, DIGEST = "task-9", "feedfeedfeedfeed"
JOB = JobRef(namespace="shop", name="export")
QUERY = "the nightly export stops with disk full"
NOW = Failure(QUERY, signature=Signature(error_class=None, text="disk full", digest=DIGEST), job=JOB)
BY_COSINE = LikenessModel(rank={"cosine": 1.0}, intercept=-4.0, weights={"cosine": 4.9}, fitted_on="test")
"""A cosine of .9 is a likeness of .60, one of .1 is .03."""
STEPS = (
    "Steps when the nightly export stops with disk full:\n\n1. Empty the folder for old exports.\n2. Double the volume."
)
numbers = count(1)


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
    number = next(numbers)
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

"""The gate of a failure: one likely page is enough, and a stop shows what may help."""

from typing import Any

import pytest
from agents.developer_memory import Shelf
from agents.known_attempts import JOB, tried
from agents.section_pages import EXITS

from counterpoint.developer.evidence.failure import Failure, differences
from counterpoint.developer.handlers import handle_delegated
from counterpoint.proto.signature import signature
from counterpoint.proto.tasks import SubmitTask, TaskDelegated, TaskWorked

EXIT = {"description": "The nightly feed stops", "error_message": "process exited with exit code 137"}
BARE = "Task failed with exit code 1"


async def worked(shelf: Shelf, **asked: Any) -> TaskWorked:
    task = SubmitTask.model_validate({"kind": "troubleshoot", **asked})
    message = TaskDelegated(task_id="t1", project="shop", session_id="s", attempt=1, task=task, lane="investigate")
    commit = await handle_delegated(message, shelf.delivered("message", "t1"))
    return TaskWorked.model_validate(commit.messages[-1].data)


async def test_one_page_that_names_the_code_is_proposed_where_the_score_alone_would_stop() -> None:
    shelf = Shelf()
    shelf.ingest("exits.rst", EXITS)
    made = await worked(shelf, **EXIT)
    assert (made.outcome, made.confidence and made.confidence.band) == ("proposed", "low")
    assert "raise ``memory_mb``" in (made.text or "")
    assert any("confidence is low" in caveat for caveat in made.findings.caveats)
    unknown = await worked(shelf, **EXIT, systems=("gw-ab-1",))
    assert unknown.outcome == "proposed", "a remedy needs no provider of the system that failed"


async def test_a_page_that_is_not_likely_to_answer_does_not_open_the_gate() -> None:
    shelf = Shelf()
    shelf.ingest("exits.rst", EXITS)
    made = await worked(shelf, **(EXIT | {"error_message": "process exited with exit code 9"}))
    assert (made.outcome, made.code) == ("stopped", "low_confidence")


async def test_a_class_that_memory_knows_of_several_fixes_does_not_open_the_gate() -> None:
    page = "# Joins\n\nOnce a join ended with KontorJobException.\n\n1. Raise the shuffle partitions.\n"
    failure = {"description": "The nightly feed stops", "error_message": "KontorJobException: the queue is sealed"}
    outcomes = []
    for fixes in ((), ("the volume is full", "the key is expired", "the peer has left")):
        shelf = Shelf()
        shelf.ingest("joins.md", page)
        for n, error in enumerate(fixes):
            body = tried(f"Mend it: {error}", task=f"other-{n}", by_kind="person").body
            body |= {"error_message": f"KontorJobException: {error}", "outcome": "succeeded", "evidence": "reported"}
            shelf.put("attempts", f"attempt-{n}", body)
        made = await worked(shelf, **failure)
        outcomes.append("Raise the shuffle partitions" in (made.text or ""))
    assert outcomes == [True, False]


async def test_different_values_in_the_same_message_are_named_without_an_objection() -> None:
    then, now = (f"SinkError: channel CH_{n} is invalidated at offset {n}4211, {'x' * 250}" for n in (17, 3))
    shelf = Shelf()
    body = tried("Recreate the channel.", digest=signature(then).digest, job=JOB, by_kind="person").body
    shelf.put("attempts", "a", body | {"error_message": then}, integrity=2)
    made = await worked(shelf, description="Another", error_message=now, target={"job": JOB.model_dump()})
    assert made.outcome == "proposed"
    assert "- values in the error then: 174211, CH_17; now: 34211, CH_3" in (made.text or "")
    assert made.objections == ()
    other = "SinkError: no grant on the stage " + "y" * 250
    first, second = (Failure("t", error, signature(error)) for error in (then, other))
    assert differences(first, second) == (f"error then: {then[:199]}…; now: {other[:199]}…",)


async def test_a_stop_for_lack_of_confidence_shows_its_best_offer() -> None:
    shelf = Shelf()
    body = tried("Move the export.", digest=signature(BARE).digest, job=JOB, by_kind="agent").body
    shelf.put("attempts", "a", body | {"error_message": BARE}, integrity=1)
    target = {"job": JOB.model_dump()}
    made = await worked(shelf, description="Another morning", error_message=BARE, target=target)
    assert (made.outcome, made.code) == ("stopped", "low_confidence")
    assert "This failure may be a different one." in (made.text or "")
    assert "> Move the export." in (made.text or "")
    assert 0 < (made.findings.likelihood or 0) < 0.7


@pytest.mark.parametrize(
    ("error", "named"),
    [
        ("Error: the state is locked", None),
        ("org.apache.spark.SparkException: the broadcast is too large", None),
        ("SinkError: the channel is invalidated", "SinkError"),
    ],
)
def test_a_generic_class_does_not_make_two_failures_the_same(error: str, named: str | None) -> None:
    one, other = (Failure(text, error, signature(error)) for text in ("Monday", "Tuesday"))
    assert one.common_code(other) == named

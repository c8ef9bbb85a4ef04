"""Searches for an incident: made of its job and its error, never of the sentences that every incident's task has."""

import re

import pytest
from agents.lineage_data import orders
from agents.lineage_house import House

from counterpoint.developer.evidence.failure import failure_of_task
from counterpoint.developer.evidence.gather import queries
from counterpoint.proto.memory import HybridSearch
from counterpoint.proto.signature import headline
from counterpoint.proto.tasks import JobRef, SubmitTask, Target, TaskDelegated


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def searches(task: SubmitTask) -> list[str]:
    message = TaskDelegated(
        task_id=task.task_id or "t1", project="default", session_id="s1", attempt=1, task=task, lane="investigate"
    )
    return [query.text for query in queries(message).values() if isinstance(query, HybridSearch)]


async def test_the_searches_for_an_incident_hold_the_words_of_its_job_and_its_error_alone() -> None:
    house = House()
    await house.take([*orders("1_monday_ok"), *orders("2_tuesday_fails")])
    (task,) = house.tasks
    assert task.target is not None
    assert task.target.job is not None
    known = words(task.target.job.name) | words(" ".join(part or "" for part in headline(task.error_message or "")))
    asked = searches(task)
    assert len(asked) > 1
    for text in asked:
        assert words(text) <= known, text


@pytest.mark.parametrize("context", [None, {}, {"incident_id": "another"}])
def test_a_description_by_a_person_is_searched_for_unchanged(context: dict[str, str] | None) -> None:
    task = SubmitTask(
        kind="troubleshoot",
        task_id="t1",
        description="Nobody can print since the second floor moved.",
        target=Target(job=JobRef(namespace="n", name="print")),
        context=context,
    )
    assert failure_of_task(task).text == task.description

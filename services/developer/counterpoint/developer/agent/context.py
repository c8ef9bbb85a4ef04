"""Context of an investigation: the line of the task, the attempts of its session, and reviews of similar tasks."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from counterpoint.client import Memory, readable, record
from counterpoint.developer.agent.readings import Reading, attempt_reading, record_reading
from counterpoint.developer.evidence.attempts import NO_OUTCOME, EarlierAttempt
from counterpoint.developer.evidence.failure import failure_of_attempt, failure_of_task
from counterpoint.developer.evidence.search_query import QUERY_CHARS
from counterpoint.developer.policies.commits import ReviewNote
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.memory import Get, HybridSearch, Item, Line, List
from counterpoint.proto.plans import PlanNote
from counterpoint.proto.sessions import SessionRecord, SessionSummary, summary_id
from counterpoint.proto.tasks import TaskDelegated

LINE_CHARS = 32_000
"""Maximum characters of the line in a prompt, about 8,000 tokens. Its newest actions are shown, and none is cut."""
ACTIONS = 200
"""Maximum number of actions that are read, beside those of this delivery."""
OWN_ACTIONS = 16
"""Maximum number of actions of an investigation."""
SESSION_TASKS, SESSION_ATTEMPTS = 5, 6
"""Maximum number of other tasks of the session, and of attempts at each, that are read."""
REVIEWS, PLANS = 3, 3
PLANNED = frozenset({"plan", "build"})
"""Lanes that read what earlier plans came to."""


async def read_context(memory: Memory, message: TaskDelegated, known: Iterable[EarlierAttempt]) -> tuple[Reading, ...]:
    """Return the readings about what was done before: the line of the task, newest action first, the summary and the
    attempts of its session, what the reviewer objected to in similar tasks, and for a plan what similar ones came to.

    Actions and reviews of this delivery are left out, so that a redelivery reads the same.
    """
    text = failure_of_task(message.task).text[:QUERY_CHARS]
    line, session, compacted, reviews, *plans = await memory.query(
        Line(task_id=message.task_id, newest_first=True, limit=ACTIONS + OWN_ACTIONS),
        Get(store="sessions", id=message.session_id),
        Get(store="sessions", id=summary_id(message.session_id)),
        HybridSearch(store="judge_memory", text=text, k=REVIEWS),
        *([HybridSearch(store="planner_memory", text=text, k=PLANS)] if message.lane in PLANNED else []),
    )
    return (
        *line_readings(item for item in line.items if datetime.fromisoformat(item.body["at"]) < memory.now),
        *(record_reading("session", item, record(item, SessionSummary).summary) for item in compacted.items),
        *(await _session_readings(memory, message, session.items, known)),
        *_review_readings(memory, message, reviews.items),
        *(reading for result in plans for reading in _plan_readings(memory, message, result.items)),
    )


def earlier_attempt(item: Item, attempt: Attempt, known: Iterable[EarlierAttempt], task_id: str) -> EarlierAttempt:
    """Return the ranked attempt of an item. One that is not ranked is at another failure, so it has no likeness."""
    unlike = EarlierAttempt(item, attempt, failure_of_attempt(attempt), 0.0, in_task=attempt.task_id == task_id)
    return next((one for one in known if one.item.id == item.id), unlike)


def line_readings(newest_first: Iterable[Item]) -> tuple[Reading, ...]:
    """Return the newest actions within the limit. The first that exceeds it ends the line: later reasoning without the
    earlier is understandable, a line with gaps is not."""
    readings: list[Reading] = []
    left = LINE_CHARS
    for item in newest_first:
        reading = _action_reading(item)
        left -= len(reading.hit.text)
        if left < 0:
            break
        readings.append(reading)
    return tuple(readings)


def _action_reading(item: Item) -> Reading:
    """Return an action of a line, with its result."""
    body = item.body
    result = f"\nresult: {body['result']}" if body.get("result") else ""
    return record_reading("action", item, f"{body['agent']} {body['kind']}: {body['reasoning']}{result}")


async def _session_readings(
    memory: Memory, message: TaskDelegated, found: Sequence[Item], known: Iterable[EarlierAttempt]
) -> tuple[Reading, ...]:
    """Return the attempts at earlier tasks of the session, the newest task first."""
    task_ids = record(found[0], SessionRecord).task_ids if found else ()
    if message.task_id not in task_ids:
        return ()
    earlier = task_ids[: task_ids.index(message.task_id)][-SESSION_TASKS:]
    lists = [List(store="attempts", where={"task_id": task_id}, limit=SESSION_ATTEMPTS) for task_id in earlier[::-1]]
    items = [item for result in await memory.query(*lists) for item in result.items]
    return tuple(
        attempt_reading(earlier_attempt(item, attempt, known, message.task_id), "in this session")
        for item, attempt in readable(items, Attempt)
        if attempt.outcome not in NO_OUTCOME and not attempt.shadow
    )


def _review_readings(memory: Memory, message: TaskDelegated, found: Sequence[Item]) -> tuple[Reading, ...]:
    return tuple(
        record_reading("review", item, note.text)
        for item, note in readable(found, ReviewNote)
        if note.task_id != message.task_id and note.at < memory.now
    )


def _plan_readings(memory: Memory, message: TaskDelegated, found: Sequence[Item]) -> tuple[Reading, ...]:
    return tuple(
        record_reading("plan", item, note.text)
        for item, note in readable(found, PlanNote)
        if note.task_id != message.task_id and note.at < memory.now
    )

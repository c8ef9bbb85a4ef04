"""Turns of one project: by weight and due time, and nobody waits for ever."""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.bus.fair_limiter import FairLimiter
from counterpoint.bus.turns import HORIZON, WEIGHTS, TurnQueue, Urgency, urgency_of_task
from counterpoint.router.intake.priority import urgency_of_body

NOW = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)
PRIORITIES = st.sampled_from(sorted(WEIGHTS))
ALL = sum(WEIGHTS.values())


@given(
    first=st.lists(st.tuples(PRIORITIES, st.integers(0, 120)), min_size=1, max_size=40),
    later=st.lists(st.lists(st.tuples(PRIORITIES, st.integers(0, 120)), max_size=4), max_size=200),
)
def test_every_wait_has_a_bounded_number_of_turns(
    first: Sequence[tuple[str, int]], later: Sequence[Sequence[tuple[str, int]]]
) -> None:
    """The number of turns before a waiter depends only on the earlier-due waiters of its priority, whatever arrives
    later."""
    queue = TurnQueue[int]()
    arrived: list[tuple[str, float, int]] = []
    popped = 0

    def arrive(priority: str, deadline_s: int, minute: int) -> None:
        at = NOW + timedelta(minutes=minute)
        urgency = urgency_of_task(priority, at + timedelta(minutes=deadline_s), at)
        queue.push(len(arrived), urgency)
        arrived.append((priority, urgency.due, popped))

    for priority, deadline_s in first:
        arrive(priority, deadline_s, 0)
    waiting_before = {n: [m for m in range(len(arrived)) if m != n] for n in range(len(arrived))}
    order: list[int] = []
    for minute, more in enumerate([*later, *([] for _ in range(1000))]):
        for priority, deadline_s in more:
            arrive(priority, deadline_s, minute)
        if not len(queue):
            break
        order.append(queue.pop())
        popped += 1
    assert len(order) == len(arrived) == len(set(order))
    for n in waiting_before:
        priority, due, _ = arrived[n]
        ahead = sum(1 for p, d, _ in arrived if p == priority and d <= due)
        assert order.index(n) <= 2 * (ahead + 1) * (ALL // WEIGHTS[priority] + 1)


def test_a_waiter_of_a_later_hour_overtakes_none_of_its_priority() -> None:
    late = NOW + HORIZON + timedelta(seconds=1)
    early, other = urgency_of_task("low", None, NOW), urgency_of_task("low", late + timedelta(seconds=1), late)
    assert early.due < other.due
    assert urgency_of_task("low", late - timedelta(days=1), late).due == late.timestamp()


def test_weights_share_the_turns() -> None:
    queue = TurnQueue[str]()
    for n in range(30):
        for priority, weight in WEIGHTS.items():
            queue.push(priority, Urgency(weight, n))
    taken = [queue.pop() for _ in range(2 * ALL)]
    assert {priority: taken.count(priority) for priority in WEIGHTS} == {
        priority: 2 * weight for priority, weight in WEIGHTS.items()
    }
    assert taken[0] == "urgent"


def test_within_a_priority_the_earlier_deadline_is_first_then_the_earlier_arrival() -> None:
    queue = TurnQueue[str]()
    queue.push("none", urgency_of_task("normal", None, NOW))
    queue.push("in an hour and a half", urgency_of_task("normal", NOW + timedelta(minutes=90), NOW))
    queue.push("in ten minutes", urgency_of_task("normal", NOW + timedelta(minutes=10), NOW))
    queue.push("unknown", urgency_of_task("whenever", None, NOW + timedelta(seconds=1)))
    assert [queue.pop() for _ in range(4)] == ["in ten minutes", "none", "in an hour and a half", "unknown"]


@pytest.mark.parametrize(
    ("body", "urgency"),
    [
        (b'{"priority": "urgent", "deadline": "2026-11-25T12:10:00Z"}', ("urgent", 10)),
        (b'{"specversion": "1.0", "data": {"priority": "low"}}', ("low", 60)),
        (b'{"priority": 7, "deadline": "soon"}', ("normal", 60)),
        (b"\xff[", ("normal", 60)),
        (b'[{"priority": "urgent"}]', ("normal", 60)),
        (b"[" * 100_000, ("normal", 60)),
    ],
)
def test_every_body_has_a_turn(body: bytes, urgency: tuple[str, int]) -> None:
    priority, minutes = urgency
    assert urgency_of_body(body, NOW) == Urgency(WEIGHTS[priority], (NOW + timedelta(minutes=minutes)).timestamp())


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(deadline=JSON)
def test_any_deadline_gives_a_turn(deadline: Any) -> None:
    assert urgency_of_body(json.dumps({"deadline": deadline}).encode(), NOW).weight == WEIGHTS["normal"]


async def test_a_limiter_admits_the_urgent_waiter_before_the_backlog_of_its_project() -> None:
    limiter, came = FairLimiter(1), list[str]()

    async def wait(name: str, urgency: Urgency) -> None:
        async with limiter.slot("p", urgency=urgency):
            came.append(name)

    async with limiter.slot("p"):
        tasks = [asyncio.create_task(wait("low", urgency_of_task("low", None, NOW))) for _ in range(50)]
        tasks.append(asyncio.create_task(wait("urgent", urgency_of_task("urgent", None, NOW))))
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert came.index("urgent") <= 1

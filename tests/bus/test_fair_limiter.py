"""Turns: never more at once than there may be, a project alone has all, and nobody waits behind another's queue."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from itertools import pairwise
from typing import Any

import pytest
from bus.small_house import SmallHouse, alive, eventually, project
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.bus.fair_limiter import FairLimiter
from counterpoint.client import Memory
from counterpoint.proto import subjects
from counterpoint.proto.errors import Transient
from counterpoint.proto.memory import Commit
from counterpoint.proto.tasks import SubmitTask
from counterpoint.router.intake.priority import urgency_of_body


class Line:
    """Those who wait for turns, and in which order they come."""

    def __init__(self, turns: FairLimiter) -> None:
        self.turns = turns
        self.came: list[str] = []
        self.inside = 0
        self.most = 0

    async def __call__(self, project: str) -> None:
        async with self.turns.slot(project):
            self.came.append(project)
            self.inside += 1
            self.most = max(self.most, self.inside)
            await asyncio.sleep(0)
            self.inside -= 1


@given(
    limit=st.integers(1, 4),
    waiting=st.dictionaries(st.sampled_from("abcde"), st.integers(1, 12), min_size=1),
    weights=st.dictionaries(st.sampled_from("abcde"), st.integers(1, 3)),
    gone=st.sets(st.integers(0, 40)),
)
def test_between_two_turns_of_a_project_each_other_one_has_its_weight_of_them(
    limit: int, waiting: dict[str, int], weights: dict[str, int], gone: set[int]
) -> None:
    async def run() -> Line:
        line = Line(FairLimiter(limit, weights))
        async with AsyncExitStack() as held:
            for _ in range(limit):
                await held.enter_async_context(line.turns.slot("z"))
            asked = [asyncio.create_task(line(name)) for name, count in waiting.items() for _ in range(count)]
            await asyncio.sleep(0)
            for n in gone & set(range(len(asked))):
                asked[n].cancel()
            await asyncio.sleep(0)
        await asyncio.gather(*asked, return_exceptions=True)
        assert (line.turns.locked(), line.turns.waiting) == (False, 0)
        return line

    line = asyncio.run(run())
    assert line.most <= limit
    named = [name for name, count in waiting.items() for _ in range(count)]
    assert Counter(line.came) == Counter(name for n, name in enumerate(named) if n not in gone)
    for name in waiting:
        places = [place for place, came in enumerate(line.came) if came == name]
        for before, after in pairwise(places):
            between = Counter(line.came[before + 1 : after])
            assert all(count <= weights.get(other, 1) for other, count in between.items())


async def test_a_caller_without_a_slot_in_time_is_told_to_retry() -> None:
    turns = FairLimiter(1)
    async with turns.slot("a"):
        with pytest.raises(Transient, match="busy") as busy:
            async with turns.slot("b", 0.01):
                pass
        assert busy.value.retry_after_s
    async with turns.slot("b", 0.01):
        assert turns.locked()


async def test_other_load_takes_slots_too() -> None:
    beside = 2
    turns = FairLimiter(2, other_load=lambda: beside)
    waiting = asyncio.create_task(Line(turns)("a"))
    await asyncio.sleep(0)
    assert turns.waiting == 1
    beside = 1
    turns.admit()
    await waiting


async def test_a_project_behind_the_backlog_of_another_waits_at_most_one_turn(house: SmallHouse) -> None:
    service, busy, other = house.service("router", workers=4), project(), project()
    heard: list[str] = []
    go = asyncio.Event()
    turns = FairLimiter(2)

    @service.on(SubmitTask)
    async def submitted(message: SubmitTask, memory: Memory) -> Commit:
        if memory.origin.project in (busy, other):
            heard.append(memory.origin.project)
            await go.wait()
        return Commit()

    service.limit_intake(SubmitTask, turns, urgency_of_body)
    async with alive(service), house.client("publisher") as outsider:
        await submit(outsider, busy, 20)
        await submit(outsider, other, 1)
        await eventually(lambda: turns.waiting == 19)
        go.set()
        await eventually(lambda: len(heard) == 21)
        await eventually(lambda: all_is_acknowledged(house))
    assert heard.index(other) <= 4


async def test_those_that_wait_for_a_turn_when_their_service_ends_go_to_the_next_one_at_once(house: SmallHouse) -> None:
    first, second, place = house.service("router"), house.service("router"), project()
    heard: list[str] = []
    go = asyncio.Event()

    async def submitted(message: SubmitTask, memory: Memory) -> Commit:
        if memory.origin.project == place:
            heard.append(message.description)
            await go.wait()
        return Commit()

    for service in (first, second):
        service.on(SubmitTask)(submitted)
    turns = FairLimiter(1)
    first.limit_intake(SubmitTask, turns, urgency_of_body)
    async with house.client("publisher") as outsider:
        async with alive(first):
            await submit(outsider, place, 5)
            await eventually(lambda: heard and turns.waiting == 4)
            go.set()
            first.stop()
        async with alive(second):
            await eventually(lambda: len(set(heard)) == 5)
            await eventually(lambda: all_is_acknowledged(house))
    assert len(heard) == 5
    assert not await house.dead_letters(place)


async def all_is_acknowledged(house: SmallHouse) -> bool:
    async with house.client("provisioner") as client:
        info = await client.jetstream().consumer_info(subjects.INTAKE, "router")
    return (info.num_pending, info.num_ack_pending) == (0, 0)


async def submit(outsider: Any, place: str, count: int) -> None:
    for n in range(count):
        body = f'{{"kind": "question", "description": "task {n}"}}'.encode()
        await outsider.jetstream().publish(subjects.of(SubmitTask.TYPE, place), body)

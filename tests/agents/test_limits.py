"""Limits of what model calls may cost, on memory's request server and through the real LiteLLM."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from agents.gateway_world import PRICED, UNPRICED, Door, World, client, gateway
from agents.limited_calls import AT, generated, limit, spent, working
from bus.small_house import eventually
from hypothesis import given
from hypothesis import strategies as st
from memory_service.house import House
from starlette.responses import Response

from counterpoint.client import Gateway, Memory
from counterpoint.manager.gateway.limits import applied_limits
from counterpoint.manager.gateway.models import ModelProvider
from counterpoint.manager.gateway.provider_limits import ProviderLimits
from counterpoint.proto.errors import Denied, Permanent
from counterpoint.proto.limits import StoredLimit

pytestmark = pytest.mark.xdist_group("litellm")  # its import takes seconds


OUTSIDE = ProviderLimits(models=(PRICED, UNPRICED))
DEAR = "openai/gpt-4o"


@pytest.fixture
async def model_client(door: Door, outside: World) -> AsyncIterator[Gateway]:
    """The developer's client of a gateway to the world outside."""
    async with gateway(door, replace(OUTSIDE, search_url=outside.url)) as (url, _):
        made = client(url)
        yield made
        await made.close()


async def test_parallel_calls_of_many_tasks_never_exceed_a_limit_of_the_project(
    model_client: Gateway, door: Door, outside: World, project: str
) -> None:
    most = Decimal("0.0004")
    outside.output_tokens = 100
    await limit(door.house, project, usd=most, period="month")
    await limit(door.house, project, scope="session", tokens=10**6)
    tasks = [await working(door, project, f"t-{n}", f"s-{n % 2}") for n in range(4)]
    async with gateway(door, OUTSIDE) as (url, _):
        beside = client(url)
        made = await asyncio.gather(
            *(generated(model_client if n % 2 else beside, tasks[n % 4], f"k{n}", max_tokens=100) for n in range(24)),
            return_exceptions=True,
        )
        await beside.close()
    done = [each for each in made if not isinstance(each, BaseException)]
    refused = [each for each in made if isinstance(each, Denied)]
    assert [each for each in made if each not in done and each not in refused] == []
    assert {each.rule for each in refused} == {"budget"}
    assert all(f"the limit of project {project} for a month, until " in str(each) for each in refused)
    assert 3 < len(done) < 24
    records = await spent(door.house, project)
    (of_project,) = [body for name, body in records.items() if name.startswith(f"the limit of project {project}")]
    assert Decimal(of_project["spent_usd"]) == sum(each.usage.cost_usd for each in done) <= most
    assert Decimal(of_project["reserved_usd"]) == 0
    sessions = [body for name, body in records.items() if name.startswith("the limit of session")]
    assert 1 <= len(sessions) <= 2
    assert sum(body["calls"] for body in sessions) == len(done)
    assert len(outside.seen) == len(done)


@pytest.mark.parametrize(
    ("fields", "reached"),
    [
        ({"scope": "agent", "name": "developer"}, {"t-1", "t-2", "t-3"}),
        ({"scope": "agent"}, {"t-1", "t-2", "t-3"}),
        ({"scope": "agent", "name": "manager"}, set()),
        ({"scope": "session", "name": "s-1"}, {"t-1", "t-2"}),
        ({"scope": "session"}, {"t-1", "t-2"}),
        ({"scope": "task", "name": "t-1"}, {"t-1"}),
        ({"scope": "task"}, {"t-1"}),
        ({"scope": "project"}, {"t-1", "t-2", "t-3"}),
    ],
)
async def test_a_limit_counts_the_calls_before_it_and_holds_for_its_scope_alone(
    model_client: Gateway, door: Door, outside: World, project: str, fields: dict[str, Any], reached: set[str]
) -> None:
    sessions = {"t-1": "s-1", "t-2": "s-1", "t-3": "s-2"}
    tasks = {name: await working(door, project, name, session) for name, session in sessions.items()}
    outside.output_tokens = 1000
    before = await generated(model_client, tasks["t-1"], "before", max_tokens=1000)
    used = before.usage.input_tokens + before.usage.output_tokens
    outside.output_tokens = 5
    await limit(door.house, project, tokens=used + 10, period="day", **fields)
    refused = set()
    for name, memory in tasks.items():
        try:
            await generated(model_client, memory, "after", max_tokens=20)
        except Denied:
            refused.add(name)
    assert refused == reached


async def test_a_raised_limit_lets_calls_through_and_a_removed_one_all(
    model_client: Gateway, door: Door, project: str
) -> None:
    memory = await working(door, project, "t-1")
    await limit(door.house, project, tokens=10)
    with pytest.raises(Denied, match=r"10 of the limit of project \S+ are left"):
        await generated(model_client, memory, "k")
    await limit(door.house, project, expect=1, tokens=10**6)
    await generated(model_client, memory, "k")
    await limit(door.house, project, scope="task", tokens=0)
    with pytest.raises(Denied, match="the limit of task t-1 are left"):
        await generated(model_client, memory, "l")


async def test_a_limit_in_dollars_refuses_a_model_without_a_price(door: Door, outside: World, project: str) -> None:
    memory = await working(door, project, "t-1")
    await limit(door.house, project, usd="10", period="day")
    async with gateway(door, OUTSIDE) as (url, _):
        unpriced = client(url, UNPRICED)
        with pytest.raises(Denied, match="price is known, because the limit of project"):
            await generated(unpriced, memory, "k")
        await unpriced.close()
    assert not outside.seen


async def test_an_unknown_outcome_counts_at_its_estimate_under_a_limit_too(
    model_client: Gateway, door: Door, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def surprised(*asked: Any) -> Any:
        raise KeyError("a defect")

    memory = await working(door, project, "t-1")
    await limit(door.house, project, tokens=10**6)
    monkeypatch.setattr(ModelProvider, "call", surprised)
    with pytest.raises(Permanent, match="unknown_outcome"):
        await generated(model_client, memory, "k", max_tokens=70)
    (record,) = (await spent(door.house, project)).values()
    assert (record["unknown"], record["reserved_tokens"]) == (1, 0)
    assert record["spent_tokens"] > 70


@given(
    now=st.integers(0, 6 * 366 * 24 * 60).map(lambda minutes: AT + timedelta(minutes=minutes)),
    period=st.sampled_from(["day", "month", "total"]),
    later=st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=70)),
)
def test_calls_of_one_period_are_counted_together(now: datetime, period: Any, later: timedelta) -> None:
    limit = StoredLimit(project="p", period=period, usd=Decimal(1), by="ana", at=now)
    (one,), (other,) = (applied_limits([limit], {"project": "p"}, at) for at in (now, now + later))
    if one.until is not None and one.since is not None:
        assert one.since <= now < one.until
        assert one.until - one.since <= timedelta(days=31)
    assert (one.spend_id == other.spend_id) == (one.until is None or now + later < one.until)


def test_a_limit_applies_to_its_scope_and_name_alone() -> None:
    names: dict[Any, str | None] = {"project": "p", "agent": "developer", "session": None, "task": "t-1"}
    limits = [
        StoredLimit(project="p", scope=scope, name=name, tokens=1, by="ana", at=AT)
        for scope, name in (
            ("project", None), ("agent", None), ("agent", "memory"), ("session", None), ("task", "t-1"),
            ("task", "t-2"),
        )
    ]  # fmt: skip
    applied = applied_limits(limits, names, AT)
    assert [(each.limit.scope, each.limit.name) for each in applied] == [
        ("project", None), ("agent", None), ("task", "t-1"),
    ]  # fmt: skip
    assert len({each.spend_id for each in applied}) == 3


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"scope": "project", "name": "x", "usd": "1"}, "name must be absent for the project"),
        ({"scope": "task"}, "usd or tokens must be given"),
        ({"tokens": -1}, "greater than or equal to 0"),
    ],
)
def test_a_limit_without_sense_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        StoredLimit(project="p", by="ana", at=AT, **fields)


@pytest.fixture
async def fallback_client(door: Door, outside: World) -> AsyncIterator[Gateway]:
    """The developer's client of a gateway whose first model is dear, with two fallbacks."""
    limits = ProviderLimits(models=(DEAR,), fallbacks=(UNPRICED, PRICED), tries=1)
    async with gateway(door, limits) as (url, _):
        made = client(url, DEAR)
        yield made
        await made.close()


async def warnings_of(house: House, project: str) -> list[str]:
    body = await house.body(project, "spend", "t-1") or {}
    return list(body.get("warnings", ()))


async def test_over_a_soft_limit_a_cheaper_model_writes_and_one_warning_is_noted(
    fallback_client: Gateway, door: Door, project: str
) -> None:
    first, second = await working(door, project, "t-1"), await working(door, project, "t-2")
    await limit(door.house, project, soft_tokens=100_000, period="day")
    assert (await generated(fallback_client, first, "k", max_tokens=20)).usage.model == DEAR
    assert await warnings_of(door.house, project) == []
    await limit(door.house, project, scope="task", name="t-1", soft_usd="0")
    made = await generated(fallback_client, first, "l", max_tokens=20)
    assert made.usage.model == PRICED
    (warning,) = await warnings_of(door.house, project)
    assert warning.startswith("the soft part of the limit of task t-1 is reached: ")
    await generated(fallback_client, first, "m", max_tokens=20)
    assert await warnings_of(door.house, project) == [warning]
    assert (await generated(fallback_client, second, "k", max_tokens=20)).usage.model == DEAR


async def test_a_soft_limit_refuses_nothing(door: Door, outside: World, project: str) -> None:
    memory = await working(door, project, "t-1")
    await limit(door.house, project, soft_usd="0")
    async with gateway(door, ProviderLimits(models=(UNPRICED, PRICED), fallbacks=(PRICED,), tries=1)) as (url, _):
        alone, unpriced = client(url), client(url, UNPRICED)
        assert (await generated(alone, memory, "k")).usage.model == PRICED
        outside.answers = [Response(status_code=503)]
        made = await generated(unpriced, memory, "l")
        assert made.usage.model == UNPRICED, "the cheaper one is not available"
        await alone.close()
        await unpriced.close()
    (record,) = (await spent(door.house, project)).values()
    assert (record["warned"], record["unpriced"]) == (True, 1)


def test_a_soft_amount_is_below_the_hard_one() -> None:
    with pytest.raises(ValueError, match="soft_usd must be less than usd"):
        StoredLimit(project="p", by="ana", at=AT, usd=Decimal(2), soft_usd=Decimal(2))


async def test_calls_that_wait_for_a_model_take_turns_by_the_priority_of_their_task(
    door: Door, outside: World, project: str
) -> None:
    low = await working(door, project, "t-low", priority="low")
    urgent = await working(door, project, "t-urgent", priority="urgent")
    outside.hold.clear()
    async with gateway(door, replace(OUTSIDE, calls=1)) as (url, served):
        asking = client(url)

        def ask(memory: Memory, what: str) -> "asyncio.Task[Any]":
            messages = [{"role": "user", "content": what}]
            return asyncio.create_task(asking.generate(memory, messages, key=what, deadline_s=60))

        calls = [ask(low, f"low {n}") for n in range(6)]
        await eventually(lambda: served._limiter.waiting == 5)
        calls.append(ask(urgent, "urgent"))
        await eventually(lambda: served._limiter.waiting == 6)
        outside.hold.set()
        await asyncio.gather(*calls)
        await asking.close()
    order = [body["messages"][0]["content"] for body in outside.seen]
    assert order.index("urgent") == 1, order

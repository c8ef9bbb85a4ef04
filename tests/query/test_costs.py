"""Costs of model calls: sums by group against a reference, what is left out of them, and what a clearance may see."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from memory_service.house import House

from counterpoint.manager.gateway.ledger import CallState, ModelCallRecord
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import CostGroup, CostReport, Costs, CostSum

START = datetime(2026, 3, 30, 21, tzinfo=UTC)
INSERT = (
    "INSERT INTO records (project, store, id, version, seq, task_id, author, label, integrity, body, commit_id)"
    " VALUES ($1, 'model_calls', $2, 1, $3, $4, 'a test', $5, 2, $6, gen_random_uuid())"
)
KEYS: dict[CostGroup, Callable[[ModelCallRecord], str]] = {
    "agent": lambda call: call.agent or ("developer" if call.task_id else "memory"),
    "day": lambda call: call.reserved_at.strftime("%Y-%m-%d"),
    "session": lambda call: call.session_id or "",
    "model": lambda call: call.model,
    "task": lambda call: call.task_id or "",
}


def some_calls(number: int = 60) -> list[ModelCallRecord]:
    """Calls of every state, with and without price, task, agent and tokens, over three days."""
    random = Random(number)
    return [_call(random) for _ in range(number)]


def _call(random: Random) -> ModelCallRecord:
    at = START + timedelta(hours=random.randrange(54))
    state = random.choice(list(CallState))
    price = random.choice(("unknown", Decimal(random.randrange(10**6)) / 10**9))
    return ModelCallRecord(
        task_id=random.choice((None, "t-1", "t-2")),
        session_id=random.choice((None, "s-1")),
        agent=random.choice((None, "developer", "router")),
        key=new_id(),
        kind="generate",
        model=random.choice(("ahorn/tief", "esche@64")),
        request_sha256="0" * 64,
        state=state,
        holder="h",
        reserved_at=at,
        deadline=at,
        estimate_usd=price,
        estimate_input_tokens=7,
        estimate_output_tokens=9,
        cost_usd=None if state == CallState.RESERVED else price,
        input_tokens=None if state == CallState.RESERVED else random.randrange(1000),
        output_tokens=None if state == CallState.RESERVED else random.randrange(1000),
    )


async def insert(house: House, project: str, calls: list[ModelCallRecord], label: int = 1) -> None:
    async with house.superuser() as connection:
        for n, call in enumerate(calls, 1):
            body = json.dumps(call.model_dump(mode="json"))
            await connection.execute(INSERT, project, new_id(), n + 1000 * label, call.task_id, label, body)


async def report(house: House, project: str, **asked: Any) -> CostReport:
    found = await house.answer("manager", house.delivery(await house.routed(project, new_id())), Costs(**asked))
    return CostReport.model_validate(found.report)


def summed(calls: list[ModelCallRecord]) -> CostSum:
    """The reference."""
    ended = [call for call in calls if call.state in (CallState.SETTLED, CallState.UNKNOWN)]
    under_way = [call for call in calls if call.state == CallState.RESERVED]
    return CostSum(
        calls=len(ended),
        unpriced=sum(call.usage.usd == "unknown" for call in ended),
        unknown=sum(call.state == CallState.UNKNOWN for call in ended),
        usd=sum((call.usage.known_usd for call in ended), Decimal(0)),
        input_tokens=sum(call.usage.input_tokens for call in ended),
        output_tokens=sum(call.usage.output_tokens for call in ended),
        under_way=len(under_way),
        reserved_usd=sum((call.estimate.known_usd for call in under_way), Decimal(0)),
        reserved_tokens=sum(call.estimate.tokens for call in under_way),
    )


@pytest.mark.parametrize("number", [0, 1, 2, 60, 61])
async def test_costs_are_the_sums_of_the_calls_by_each_group(house: House, project: str, number: int) -> None:
    calls = some_calls(number)
    await insert(house, project, calls)
    since, until = START + timedelta(hours=10), START + timedelta(hours=40)
    within = [call for call in calls if since <= call.reserved_at < until]
    for asked, chosen in (({}, calls), ({"since": since, "until": until}, within)):
        for by, key in KEYS.items():
            made = [call for call in chosen if call.state != CallState.RELEASED]
            expected = {name: summed([c for c in made if key(c) == name]) for name in {key(c) for c in made}}
            found = await report(house, project, by=by, **asked)
            assert {line.key: CostSum(**line.model_dump(exclude={"key"})) for line in found.lines} == expected
            assert found.total == summed(chosen)
            one = await report(house, project, by=by, key="t-1", **asked)
            assert one.total == summed([call for call in chosen if key(call) == "t-1"])
            order = [(line.key if by == "day" else line.usd) for line in found.lines]
            assert order == sorted(order, reverse=True)


async def test_a_truncated_report_keeps_the_total(house: House, project: str) -> None:
    calls = some_calls()
    await insert(house, project, calls)
    found = await report(house, project, by="day", limit=1)
    assert (len(found.lines), found.truncated) == (1, True)
    assert found.total == summed(calls)
    whole = await report(house, project, by="project")
    assert [line.key for line in whole.lines] == [project]
    assert not whole.truncated


async def test_costs_of_other_projects_and_of_calls_above_the_clearance_are_not_shown(
    house: House, project: str
) -> None:
    calls = some_calls()
    await insert(house, project, calls, label=3)
    await insert(house, f"{project}-b", calls)
    assert await report(house, project) == CostReport(by="model")

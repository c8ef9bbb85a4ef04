"""A hard limit, from the refused call to the call that an approval pays for, on memory's real door."""

import asyncio
import json
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest
from agents.gateway_world import PRICED, UNPRICED, Door, World, client, developer, gateway
from agents.limited_calls import generated, limit
from agents.spend_approvals import MANAGER, approval, decide, handle, task
from memory_service.house import DELEGATED, PERSON, House, task_body

from counterpoint.client import Gateway, Memory, put, send
from counterpoint.manager.gateway.provider_limits import ProviderLimits
from counterpoint.proto.approvals import ApprovalDecision
from counterpoint.proto.errors import Denied
from counterpoint.proto.memory import Outgoing, Write
from counterpoint.proto.messages import utc_now
from counterpoint.proto.tasks import TaskWorked

pytestmark = pytest.mark.xdist_group("litellm")  # its import takes seconds


@pytest.fixture
async def model_client(door: Door, outside: World) -> AsyncIterator[Gateway]:
    """The developer's client of a gateway with one model."""
    async with gateway(door, ProviderLimits(models=(PRICED,))) as (url, _):
        made = client(url)
        yield made
        await made.close()


async def working(house: House, project: str, **fields: Any) -> str:
    """A task at work: the id of its delegation."""
    body = task_body("t-1", session_id="s-1", attempt=1, description="Why?", **fields)
    message = Outgoing(type=DELEGATED, data={"task_id": "t-1"})
    origin = house.delivery(await house.routed(project, "t-1"), lives_s=3600)
    write = Write(store="tasks", id="t-1", body=body)
    return (await house.apply("manager", origin, writes=(write,), messages=(message,))).message_ids[0]


async def answered(house: House, delegated: str) -> str:
    """The developer answers without the model: the id of its message."""
    worked = TaskWorked(task_id="t-1", attempt=1, outcome="answered", text="Quotes say so.", action_id="a-1")
    return (await house.apply("developer", house.delivery(delegated), messages=(send(worked),))).message_ids[0]


async def hold_spend(door: Door, delegated: str) -> list[str]:
    """The answer comes to the manager."""
    message_id = await answered(door.house, delegated)
    worked = TaskWorked.model_validate_json(door.house.sent[message_id].row.body)
    return await handle(door, message_id, worked, MANAGER.on_worked)


@pytest.mark.parametrize("scope", ["budget", "project", "task"])
async def test_an_approval_pays_for_the_call_that_a_limit_refused(
    model_client: Gateway, door: Door, outside: World, project: str, scope: Any
) -> None:
    budget = {"budget": {"tokens": 10}} if scope == "budget" else {}
    delegated = await working(door.house, project, **budget)
    if scope != "budget":
        await limit(door.house, project, scope=scope, tokens=10, usd="0.000001", period="day")
    with pytest.raises(Denied, match="budget"):
        await generated(model_client, developer(door, delegated), "k")
    await hold_spend(door, delegated)
    waiting = await approval(door.house, project)
    assert (await task(door.house, project)).waiting_for == "approval"
    assert ("the budget of the task" if scope == "budget" else f"the limit of {scope}") in waiting.artifact
    sent = await handle(door, *await decide(door, project), MANAGER.on_decided)
    (again,) = [each for each in sent if door.house.sent[each].row.type == DELEGATED]
    assert (await generated(model_client, developer(door, again), "k")).text == outside.text
    assert len(outside.seen) == 1
    assert (await approval(door.house, project)).state == "applied"


async def test_a_call_without_a_known_price_is_lifted_under_a_limit_of_tokens(
    door: Door, outside: World, project: str
) -> None:
    delegated = await working(door.house, project, budget={"tokens": 10})
    async with gateway(door, ProviderLimits(models=(UNPRICED,))) as (url, _):
        asking = client(url, UNPRICED)
        with pytest.raises(Denied, match="budget"):
            await generated(asking, developer(door, delegated), "k")
        await hold_spend(door, delegated)
        assert (await task(door.house, project)).waiting_for == "approval"
        (lift,) = (await approval(door.house, project)).lifts
        assert (lift.by_usd, lift.cap_tokens) == (None, 10)
        sent = await handle(door, *await decide(door, project), MANAGER.on_decided)
        again = next(each for each in sent if door.house.sent[each].row.type == DELEGATED)
        assert (await generated(asking, developer(door, again), "k")).text == outside.text
        await asking.close()


async def test_no_amount_of_dollars_covers_an_unknown_price(door: Door, project: str) -> None:
    delegated = await working(door.house, project, budget={"usd": "1", "tokens": 10})
    async with gateway(door, ProviderLimits(models=(UNPRICED,))) as (url, _):
        asking = client(url, UNPRICED)
        with pytest.raises(Denied, match="price is known"):
            await generated(asking, developer(door, delegated), "k")
        await asking.close()
    await hold_spend(door, delegated)
    assert (await task(door.house, project)).state == "completed"


async def test_a_warning_of_a_soft_limit_is_a_decision_once(model_client: Gateway, door: Door, project: str) -> None:
    delegated = await working(door.house, project)
    await limit(door.house, project, soft_tokens=1, period="month")
    await generated(model_client, developer(door, delegated), "k")
    sent = await hold_spend(door, delegated)
    decisions = [json.loads(door.house.sent[each].row.body) for each in sent]
    (warned,) = [each for each in decisions if each.get("decision_type") == "budget"]
    assert warned["agent"] == "manager"
    assert "the soft part of the limit of project" in warned["reasoning"]
    assert (await door.house.body(project, "spend", "t-1") or {})["warnings"] == []


async def test_a_lift_ends_with_its_limit(model_client: Gateway, door: Door, project: str) -> None:
    delegated = await working(door.house, project)
    await limit(door.house, project, tokens=10)
    with pytest.raises(Denied, match="budget"):
        await generated(model_client, developer(door, delegated), "k")
    await hold_spend(door, delegated)
    sent = await handle(door, *await decide(door, project), MANAGER.on_decided)
    again = developer(door, next(each for each in sent if door.house.sent[each].row.type == DELEGATED))
    await generated(model_client, again, "k", max_tokens=20)
    made = await limit(door.house, project, expect=1, tokens=11)
    await door.house.apply(
        "router",
        door.house.standing(project, principal=PERSON),
        writes=(put_later(made),),
    )
    with pytest.raises(Denied, match="0 of the limit"):
        await generated(model_client, again, "l", max_tokens=20)


def put_later(made: Any) -> Write:
    """The same limit, set at another time."""
    body = made.model_copy(update={"at": utc_now()}).model_dump(mode="json")
    return Write(store="limits", id=made.record_id, body=body, expect=2)


async def test_a_decision_and_the_end_of_its_time_at_once_leave_one_of_them(
    model_client: Gateway, door: Door, project: str
) -> None:
    delegated = await working(door.house, project, budget={"tokens": 10})
    with pytest.raises(Denied, match="budget"):
        await generated(model_client, developer(door, delegated), "k")
    await hold_spend(door, delegated)
    waiting = await approval(door.house, project)
    item = await Memory(door, "router", door.house.standing(project, principal=PERSON), utc_now()).get(
        "approvals", waiting.approval_id
    )
    assert item is not None
    given = ApprovalDecision(decision="approved", artifact_sha256=waiting.artifact_sha256)

    async def by_person(name: str) -> str:
        origin = door.house.standing(project, principal=PERSON)
        decided = waiting.decided(given, name, "person", utc_now())
        write = put("approvals", waiting.approval_id, decided, existing=item)
        reply = await door.house.commit("router", origin, writes=(write,))
        return reply.refusal.kind if reply.refusal else reply.status

    async def by_timer() -> str:
        origin = door.house.delivery(await door.house.reported(project, "t-1"))
        expired = waiting.expired(waiting.expires_at)
        write = put("approvals", waiting.approval_id, expired, existing=item)
        reply = await door.house.commit("manager", origin, writes=(write,))
        return reply.refusal.kind if reply.refusal else reply.status

    statuses = await asyncio.gather(by_person("ana"), by_timer(), by_person("ben"))
    assert sorted(statuses) == ["conflict", "conflict", "done"], statuses
    after = await approval(door.house, project)
    assert (after.decided_by, after.state) == [
        ("ana", "approved"), (None, "expired"), ("ben", "approved"),
    ][statuses.index("done")]  # fmt: skip


async def test_a_refusal_is_noted_once_and_forgotten_with_the_next_call(
    model_client: Gateway, door: Door, project: str
) -> None:
    delegated = await working(door.house, project, budget={"tokens": 300, "usd": "1"})
    memory = developer(door, delegated)
    for _ in range(2):
        with pytest.raises(Denied, match="budget"):
            await generated(model_client, memory, "k", max_tokens=5000)
    spent = await door.house.body(project, "spend", "t-1") or {}
    assert spent["refused"]["tokens"] > 5000
    assert Decimal(spent["refused"]["usd"]) > 0
    await generated(model_client, memory, "l", max_tokens=20)
    assert "refused" not in (await door.house.body(project, "spend", "t-1") or {})

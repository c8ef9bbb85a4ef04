"""Calls of tools of principals that a limit refuses: a person is asked once to lift it, on memory's real door."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from agents.editor_calls import completion, principal, token
from agents.gateway_world import PRICED, Door, World, delegated, gateway
from agents.limited_calls import limit
from agents.spend_approvals import MANAGER, decide, handle, task
from memory_service.house import PERSON, House
from openai import AsyncOpenAI, PermissionDeniedError

from counterpoint.client import record
from counterpoint.guard.policy import policy
from counterpoint.manager.approval_handlers import ApprovalDesk
from counterpoint.manager.gateway.provider_limits import ProviderLimits
from counterpoint.manager.handlers import ManagerHandlers
from counterpoint.manager.task_limits import TaskLimits
from counterpoint.proto.approvals import Approval, ApprovalRequested
from counterpoint.proto.memory import List, Write
from counterpoint.proto.messages import utc_now
from counterpoint.proto.tasks import TaskDue

pytestmark = pytest.mark.xdist_group("litellm")


@pytest.fixture
async def url(door: Door, outside: World) -> AsyncIterator[str]:
    async with gateway(door, ProviderLimits(models=(PRICED,))) as (url, _):
        yield f"{url}/v1"


def refusal_notices(house: House, project: str) -> list[str]:
    """The messages that tell the manager of refused calls of tools."""
    return [
        message_id
        for message_id, sent in house.sent.items()
        if sent.row.type == TaskDue.TYPE and sent.project == project and '"tool_refused"' in sent.row.body
    ]


def approval_requests(house: House, project: str) -> list[str]:
    """The requests for approvals."""
    return [
        message_id
        for message_id, sent in house.sent.items()
        if sent.row.type == ApprovalRequested.TYPE and sent.project == project
    ]


async def approvals(house: House, project: str) -> list[Approval]:
    found = await house.answer("router", house.standing(project, principal=PERSON), List(store="approvals"))
    return [record(item, Approval) for item in found.items]


async def handled(door: Door, project: str, manager: ManagerHandlers = MANAGER) -> None:
    """The manager handles all that it is told, the last twice, as after a redelivery."""
    ids = refusal_notices(door.house, project)
    for message_id in ids:
        await handle(door, message_id, TaskDue(task_id="t-1", timer="tool_refused"), manager.on_due)
    assert ids


async def refused(url: str, key: str, times: int = 1) -> None:
    """Calls that the limit refuses."""
    async with AsyncOpenAI(base_url=url, api_key=key, max_retries=0) as client:
        calls = (
            client.chat.completions.create(
                model=PRICED, messages=[{"role": "user", "content": f"Question {n}"}], max_tokens=100
            )
            for n in range(times)
        )
        made = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(each) for each in made} == {PermissionDeniedError}, made


@pytest.mark.parametrize(
    "scope", ["budget", *(pytest.param(each, marks=pytest.mark.slow) for each in ("project", "agent"))]
)
async def test_a_hundred_refused_calls_ask_once_and_the_approved_lift_lets_them_through(
    url: str, door: Door, project: str, outside: World, scope: Any
) -> None:
    house = door.house
    await delegated(house, project, "t-1", tokens=10 if scope == "budget" else 10**6)
    name = await principal(house, "ines", project)
    if scope != "budget":
        await limit(house, project, scope=scope, name=name if scope == "agent" else None, tokens=10)
    key = await token(house, project, name)
    before = await task(house, project)
    await refused(url, key, 100)
    assert len(refusal_notices(house, project)) == 1
    await handled(door, project)
    await handled(door, project)
    await refused(url, key)
    (waiting,) = await approvals(house, project)
    assert len(approval_requests(house, project)) == 1
    assert waiting.summary == f"a limit refused a call of a tool of {name} (supervised)"
    assert ("the budget of the task" if scope == "budget" else f"the limit of {scope}") in waiting.artifact
    assert await task(house, project) == before, "the work goes on"
    assert not outside.seen
    await handle(door, *await decide(door, project), MANAGER.on_decided)
    assert await completion(url, key) == outside.text
    (applied,) = await approvals(house, project)
    assert applied.state == "applied"
    spend = await house.body(project, "spend", "t-1")
    assert spend is not None
    assert not {"tool_refused", "tool_approval", "ask_again_at"} & {name for name, value in spend.items() if value}


async def test_a_decision_that_comes_twice_lifts_once(url: str, door: Door, project: str, outside: World) -> None:
    await delegated(door.house, project, "t-1", tokens=10)
    key = await token(door.house, project)
    await refused(url, key)
    await handled(door, project)
    message_id, message = await decide(door, project)
    await handle(door, message_id, message, MANAGER.on_decided)
    once = await door.house.body(project, "spend", "t-1")
    await handle(door, message_id, message, MANAGER.on_decided)
    assert await door.house.body(project, "spend", "t-1") == once


async def test_a_small_call_that_passes_meanwhile_leaves_the_approval_as_it_is(
    url: str, door: Door, project: str, outside: World
) -> None:
    await delegated(door.house, project, "t-1", tokens=400)
    key = await token(door.house, project)
    async with AsyncOpenAI(base_url=url, api_key=key, max_retries=0) as client:

        async def call(max_tokens: int) -> Any:
            messages: list[Any] = [{"role": "user", "content": f"Up to {max_tokens}?"}]
            return await client.chat.completions.create(model=PRICED, messages=messages, max_tokens=max_tokens)

        with pytest.raises(PermissionDeniedError):
            await call(900)
        await handled(door, project)
        await call(20)
        with pytest.raises(PermissionDeniedError):
            await call(901)
        await handled(door, project)
        assert len(await approvals(door.house, project)) == 1
        await handle(door, *await decide(door, project), MANAGER.on_decided)
        await call(902)
    assert [each.state for each in await approvals(door.house, project)] == ["applied"]


async def test_after_a_rejection_nothing_is_asked_until_its_time_is_over(
    url: str, door: Door, project: str, outside: World
) -> None:
    house = door.house
    await delegated(house, project, "t-1", tokens=10)
    key = await token(house, project)
    await refused(url, key)
    await handled(door, project)
    await handle(door, *await decide(door, project, "rejected"), MANAGER.on_decided)
    await refused(url, key, 5)
    assert len(refusal_notices(house, project)) == 1
    assert [each.state for each in await approvals(house, project)] == ["rejected"]
    async with house.superuser() as connection:
        over = "UPDATE records SET body = body || jsonb_build_object('ask_again_at', $2::text) WHERE project = $1"
        await connection.execute(f"{over} AND store = 'spend'", project, (utc_now() - timedelta(hours=1)).isoformat())
    await refused(url, key, 5)
    assert len(refusal_notices(house, project)) == 2
    await handled(door, project)
    assert sorted(each.state for each in await approvals(house, project)) == ["pending", "rejected"]


async def test_a_limit_that_changed_since_is_not_lifted_and_is_asked_about_again(
    url: str, door: Door, project: str, outside: World
) -> None:
    house = door.house
    await delegated(house, project, "t-1", usd="1")
    await limit(house, project, tokens=10)
    key = await token(house, project)
    await refused(url, key)
    await handled(door, project)
    await limit(house, project, expect=1, tokens=20)
    await handle(door, *await decide(door, project), MANAGER.on_decided)
    (stale,) = await approvals(house, project)
    assert (stale.state, stale.reason) == ("outdated", "a limit has changed since it was shown")
    await refused(url, key)
    for message_id in refusal_notices(house, project)[1:]:
        await handle(door, message_id, TaskDue(task_id="t-1", timer="tool_refused"), MANAGER.on_due)
    assert sorted(each.state for each in await approvals(house, project)) == ["outdated", "pending"]


async def test_a_policy_that_refuses_requests_no_approval(url: str, door: Door, project: str, outside: World) -> None:
    await delegated(door.house, project, "t-1", tokens=10)
    key = await token(door.house, project)
    await refused(url, key)
    shipped = policy().approvals
    never = shipped.model_copy(
        update={"acts": {**shipped.acts, "spend": dict.fromkeys(shipped.acts["spend"], "refuse")}}
    )
    await handled(door, project, ManagerHandlers(TaskLimits(), ApprovalDesk(never)))
    assert await approvals(door.house, project) == []


async def test_a_limit_of_the_organisation_is_lifted_by_no_approval_of_a_project(
    url: str, door: Door, project: str, outside: World
) -> None:
    from counterpoint.proto.limits import ORGANISATION_STORE, StoredOrganisationLimit

    house = door.house
    await delegated(house, project, "t-1", usd="1")
    key = await token(house, project)
    made = StoredOrganisationLimit(name=f"of-{project}"[:64], projects=(project,), tokens=1, by=PERSON, at=utc_now())
    body = made.model_dump(mode="json", exclude_none=True)
    origin = house.standing("default", principal=PERSON)
    await house.apply("router", origin, writes=(Write(store=ORGANISATION_STORE, id=made.record_id, body=body),))
    await refused(url, key, 3)
    assert refusal_notices(house, project) == []
    removed = Write(store=ORGANISATION_STORE, id=made.record_id, expect=1)
    await house.apply("router", house.standing("default", principal=PERSON), writes=(removed,))
    assert await completion(url, key) == outside.text

"""Tokens for editors: a tool of a principal calls models for a task, on its budget, as long as both have the right."""

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from agents.editor_calls import QUESTION, completion, issued, principal, token
from agents.gateway_world import PRICED, Door, World, delegated, gateway
from memory_service.house import PERSON, House
from openai import AsyncOpenAI, AuthenticationError, PermissionDeniedError

from counterpoint.guard.policy import policy
from counterpoint.manager.gateway.provider_limits import ProviderLimits
from counterpoint.memory.audit.packed_leaf import leaf_text
from counterpoint.proto.commands import CommandReply, CommandRequest, IssueEditorToken
from counterpoint.proto.memory import Origin, Write
from counterpoint.proto.messages import utc_now
from counterpoint.proto.principals import Principal

pytestmark = pytest.mark.xdist_group("litellm")  # its import takes seconds


DOLLAR = {"usd": "1"}


@pytest.fixture
async def url(door: Door, outside: World) -> AsyncIterator[str]:
    async with gateway(door, ProviderLimits(models=(PRICED,))) as (url, _):
        yield f"{url}/v1"


async def stored(house: House, record_id: str, one: Principal, version: int = 0) -> None:
    write = Write(store="principals", id=record_id, expect=version, body=one.model_dump(mode="json", exclude_none=True))
    await house.apply("router", house.standing("default", principal=PERSON), writes=(write,))


async def code(house: House, project: str, name: str | None = PERSON, **asked: Any) -> str:
    """The refusal."""
    reply = await issued(house, project, name, **asked)
    assert reply.token is None
    assert reply.refusal is not None
    return reply.refusal.code


async def test_calls_are_paid_by_the_task_and_belong_to_the_principal(
    url: str, door: Door, project: str, outside: World
) -> None:
    house = door.house
    await delegated(house, project, "t-1", **DOLLAR)
    name = await principal(house, "ines", project)
    key = await token(house, project, name)
    assert await completion(url, key) == outside.text
    async with AsyncOpenAI(base_url=url, api_key=key, max_retries=0) as client:
        stream = await client.chat.completions.create(model=PRICED, messages=QUESTION, stream=True)
        assert [chunk async for chunk in stream]
    spent = await house.body(project, "spend", "t-1")
    assert spent is not None
    assert (spent["calls"], spent["limit_usd"], spent["reserved_tokens"]) == (2, "1", 0)
    async with house.superuser() as connection:
        rows = await connection.fetch(
            "SELECT r.label, r.integrity, r.body ->> 'agent' AS agent, r.task_id, a.body, a.packed"
            " FROM records r JOIN audit a ON a.project = r.project AND a.id = r.commit_id"
            " WHERE r.project = $1 AND r.store = 'model_calls'",
            project,
        )
    label = policy().store_level("model_calls")
    assert [tuple(row)[:4] for row in rows] == [(label, 1, name, "t-1")] * 2
    assert [json.loads(leaf_text(row["body"], row["packed"]) or "{}")["principal"] for row in rows] == [name] * 2


async def test_a_client_of_litellm_such_as_aider_names_the_model_with_its_provider_twice(
    url: str, door: Door, project: str, outside: World
) -> None:
    import litellm

    await delegated(door.house, project, "t-1", **DOLLAR)
    key = await token(door.house, project)
    made: Any = await litellm.acompletion(
        model=f"openai/{PRICED}", messages=QUESTION, api_base=url, api_key=key, max_tokens=100, num_retries=0
    )
    assert made.choices[0].message.content == outside.text
    assert outside.seen[-1]["model"] == "gpt-4o-mini"


async def test_the_budget_of_the_task_ends_the_calls(url: str, door: Door, project: str, outside: World) -> None:
    await delegated(door.house, project, "t-1", tokens=300)
    key = await token(door.house, project)
    assert await completion(url, key) == outside.text
    async with AsyncOpenAI(base_url=url, api_key=key, max_retries=0) as client:
        with pytest.raises(PermissionDeniedError, match="the budget of the task"):
            await client.chat.completions.create(model=PRICED, messages=QUESTION, max_tokens=1000)
    assert len(outside.seen) == 1


async def ended(house: House, project: str) -> None:
    async with house.superuser() as connection:
        completed = (
            """UPDATE records SET body = body || '{"state": "completed"}' WHERE project = $1 AND store = 'tasks'"""
        )
        await connection.execute(completed, project)


async def test_a_token_ends_with_the_task(url: str, door: Door, project: str, outside: World) -> None:
    await delegated(door.house, project, "t-1", **DOLLAR)
    key = await token(door.house, project)
    await ended(door.house, project)
    with pytest.raises(PermissionDeniedError, match="ended"):
        await completion(url, key)
    assert not outside.seen
    assert await code(door.house, project) == "ended"


async def test_a_token_ends_with_the_rights_of_its_principal(
    url: str, door: Door, project: str, outside: World
) -> None:
    house = door.house
    await delegated(house, project, "t-1", **DOLLAR)
    name = await principal(house, "omar", project)
    key = await token(house, project, name)
    assert await completion(url, key)
    revoked = Principal(name=name, kind="person", projects=(project,), roles=("submit", "read"), revoked_at=utc_now())
    write = Write(store="principals", id=name, expect=1, body=revoked.model_dump(mode="json", exclude_none=True))
    await house.apply("router", house.standing("default", principal=PERSON), writes=(write,))
    with pytest.raises((AuthenticationError, PermissionDeniedError)):
        await completion(url, key)
    assert len(outside.seen) == 1


async def test_a_token_ends_with_its_principal_though_a_later_one_has_the_same_name(
    url: str, door: Door, project: str, outside: World
) -> None:
    house = door.house
    await delegated(house, project, "t-1", **DOLLAR)
    name = f"rosa-{project}"
    first = Principal(
        name=name, kind="person", projects=(project,), roles=("submit", "read"), created_at=utc_now() - timedelta(1)
    )
    await stored(house, f"{name}-1", first)
    key = await token(house, project, name)
    assert await completion(url, key)
    await stored(house, f"{name}-1", first.model_copy(update={"revoked_at": utc_now()}), 1)
    await stored(house, f"{name}-2", first.model_copy(update={"created_at": utc_now()}))
    with pytest.raises((AuthenticationError, PermissionDeniedError), match="now has this name"):
        await completion(url, key)
    assert await completion(url, await token(house, project, name))
    assert len(outside.seen) == 2


async def test_a_task_above_the_clearance_of_the_providers_is_refused(
    url: str, door: Door, project: str, outside: World
) -> None:
    await delegated(door.house, project, "t-1", **DOLLAR)
    key = await token(door.house, project)
    async with door.house.superuser() as connection:
        raised = "UPDATE records SET label = $2 WHERE project = $1 AND store = 'tasks'"
        await connection.execute(raised, project, policy().level("confidential"))
    with pytest.raises(PermissionDeniedError, match="a task that may be read"):
        await completion(url, key)
    assert not outside.seen
    assert await code(door.house, project) == "label"


async def test_a_token_needs_its_roles_a_budget_and_a_known_task(door: Door, project: str) -> None:
    house = door.house
    await delegated(house, project, "t-1")
    assert await code(house, project) == "budget", "a tool calls as often as it likes"
    assert await code(house, project, task_id="t-2") == "unknown_task"
    assert await code(house, f"{project}-x") == "unknown_task"
    for roles in (("submit",), ("read",), ("read", "report", "approve")):
        name = await principal(house, "-".join(roles), project, roles)
        assert await code(house, project, name) in ("role", "store")
    assert await code(house, project, None) == "role"


async def test_only_the_router_asks_for_a_principal(door: Door, project: str) -> None:
    house = door.house
    await delegated(house, project, "t-1", **DOLLAR)
    command = IssueEditorToken(task_id="t-1", minutes=60)
    for caller, rule in (("lineage", "store"), ("manager", "grant"), ("developer", "grant")):
        asked = CommandRequest(origin=house.standing(project, principal=PERSON), command=command)
        content = await house.door.command(caller, asked.model_dump_json().encode())
        reply = CommandReply.model_validate_json(content)
        assert (reply.token, reply.refusal and reply.refusal.code) == (None, rule), caller


async def test_a_token_opens_the_ledger_of_its_task_alone(door: Door, project: str) -> None:
    house = door.house
    await delegated(house, project, "t-1", **DOLLAR)
    await delegated(house, project, "t-2", **DOLLAR)
    key = await token(house, project)
    name = f"editor:{PERSON} t-1 first"
    origin = Origin(message_id=name, project=project, task_id="t-1", capability=key, run=7)
    for store, record_id, rule in (
        ("spend", "t-2", "task"),
        ("attempts", "a-1", "store"),
        ("decisions", "d-1", "store"),
    ):
        write = Write(store=store, id=record_id, body={"task_id": "t-2"} if rule == "task" else {})
        await house.refusal("manager", origin, rule, step=f"w-{store}", last=False, writes=(write,))
    other = origin.model_copy(update={"task_id": "t-2", "message_id": f"editor:{PERSON} t-2 first"})
    await house.refusal("manager", other, "message", step="x", last=False,
                        writes=(Write(store="spend", id="t-2", body={}),))  # fmt: skip

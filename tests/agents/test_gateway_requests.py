"""Requests to memory of a call, and calls that rest on what was read before something changed."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from agents.gateway_world import PRICED, UNPRICED, Door, World, client, delegated, developer, gateway
from agents.test_limits import limit
from memory_service.house import House

from counterpoint.client import Gateway, Memory
from counterpoint.manager.gateway.gateway import ModelGateway
from counterpoint.manager.gateway.provider_limits import ProviderLimits
from counterpoint.proto.errors import Denied
from counterpoint.proto.ids import derived_id

pytestmark = pytest.mark.xdist_group("litellm")  # its import takes seconds
QUESTION = [{"role": "user", "content": "Why did it fail?"}]
OUTSIDE = ProviderLimits(models=(PRICED, UNPRICED), calls=1)


@pytest.fixture
async def listening(door: Door, outside: World) -> AsyncIterator[tuple[str, ModelGateway]]:
    async with gateway(door, OUTSIDE) as made:
        yield made


@pytest.fixture
async def asking(listening: tuple[str, ModelGateway]) -> AsyncIterator[Gateway]:
    made = client(listening[0])
    yield made
    await made.close()


@pytest.fixture
async def memory(door: Door, project: str) -> Memory:
    return developer(door, await delegated(door.house, project, "t-1"))


@pytest.fixture
def requests(door: Door) -> list[str]:
    """The operations that the gateway asks of memory: `query`, `commit`."""
    asked = list[str]()

    async def note(subject: str, _: bytes) -> None:
        _, caller, operation, *_ = subject.split(".")
        if caller == "manager":
            asked.append(operation)

    door.before = note
    return asked


async def generated(asking: Gateway, memory: Memory, key: str, **more: Any) -> Any:
    return await asking.generate(memory, QUESTION, key=key, deadline_s=20, **more)


async def begun(outside: World, asking: Gateway, memory: Memory, key: str) -> "asyncio.Task[Any]":
    """A call that the provider has received and does not answer yet."""
    outside.hold.clear()
    made = asyncio.create_task(generated(asking, memory, key))
    await outside.arrived.wait()
    return made


async def record(house: House, memory: Memory, key: str) -> dict[str, Any]:
    call_id = derived_id(memory.origin.message_id, "call", key, 0)
    return await house.body(memory.project, "model_calls", call_id) or {}


@pytest.mark.parametrize("limited", [False, True])
async def test_a_call_reads_once(
    asking: Gateway, memory: Memory, door: Door, project: str, requests: list[str], limited: bool
) -> None:
    if limited:
        await limit(door.house, project, usd="1", soft_usd="0.5", period="day")
        await limit(door.house, project, scope="task", tokens=10**6)
    await generated(asking, memory, "first")
    requests.clear()
    await generated(asking, memory, "second")
    assert requests == ["query", "commit", "query", "commit"]


async def test_a_call_that_waited_for_others_rests_on_the_limits_of_the_time_it_is_made(
    asking: Gateway, memory: Memory, outside: World, door: Door, project: str
) -> None:
    other = developer(door, await delegated(door.house, project, "t-2"))
    first = await begun(outside, asking, other, "first")
    queried = asyncio.Event()

    async def note(subject: str, _: bytes) -> None:
        if subject == "memory.manager.query":
            queried.set()

    door.after = note
    waiting = asyncio.create_task(generated(asking, memory, "second"))
    await queried.wait()
    await limit(door.house, project, tokens=1, period="day")
    outside.hold.set()
    await first
    with pytest.raises(Denied, match="the limit of project"):
        await waiting
    assert len(outside.seen) == 1


async def test_a_call_that_ends_while_the_same_is_looked_up_has_one_outcome(
    asking: Gateway, memory: Memory, outside: World, door: Door
) -> None:
    first = await begun(outside, asking, memory, "k")
    assert (await record(door.house, memory, "k"))["state"] == "reserved"

    async def finish_first(subject: str, _: bytes) -> None:
        if subject == "memory.manager.query" and not outside.hold.is_set():
            outside.hold.set()
            await first

    door.after = finish_first
    same = await generated(asking, memory, "k")
    assert same.usage.replayed
    assert (same.text, len(outside.seen)) == (outside.text, 1)
    assert (await record(door.house, memory, "k"))["state"] == "settled"

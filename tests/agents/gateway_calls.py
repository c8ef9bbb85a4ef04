"""Calls to the gateway, and the records of them."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from agents.gateway_world import EMBEDDING, PRICED, UNPRICED, Door, World, client, gateway
from memory_service.house import House

from counterpoint.client import Gateway, Memory
from counterpoint.manager.gateway.provider_limits import ProviderLimits
from counterpoint.proto.errors import Transient
from counterpoint.proto.ids import derived_id

DEAR = "openai/gpt-4o"
QUESTION = [{"role": "user", "content": "Why did it fail?"}]
OUTSIDE = ProviderLimits(models=(PRICED, UNPRICED), embedding_models=(EMBEDDING,))


async def spend(house: House, project: str, task: str = "t-1") -> dict[str, Any]:
    """Return the record of what a task has spent."""
    return await house.body(project, "spend", task) or {}


async def end_task(house: House, project: str) -> None:
    """Cancel the tasks of a project, past all rules."""
    async with house.superuser() as connection:
        await connection.execute(
            "UPDATE records SET version = version + 1, body = jsonb_set(body, '{state}', '\"cancelled\"')"
            " WHERE project = $1 AND store = 'tasks'",
            project,
        )
    house.restart()


async def call(house: House, memory: Memory, key: str, number: int = 0) -> dict[str, Any]:
    """The record of a call."""
    call_id = derived_id(memory.origin.message_id, "call", key, number)
    return await house.body(memory.project, "model_calls", call_id) or {}


def name(model: str) -> str:
    """The name by which the provider knows a model."""
    return model.partition("/")[2]


async def begun(outside: World, made: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    """A call that the provider has received and does not answer yet."""
    outside.hold.clear()
    under_way = asyncio.create_task(made)
    await outside.arrived.wait()
    return under_way


async def generated(model_client: Gateway, memory: Memory, key: str, **more: Any) -> Any:
    return await model_client.generate(memory, QUESTION, key=key, deadline_s=more.pop("deadline_s", 20), **more)


async def killed_at(door: Door, memory: Memory, step: str) -> None:
    """A gateway that ends right before the commit of this step."""
    reached = asyncio.Event()

    async def stand_in_the_way(subject: str, body: bytes) -> None:
        if f'"step":"{step} '.encode() in body:
            reached.set()
            await asyncio.Event().wait()

    other = Door(door.house)
    other.before = stand_in_the_way
    async with gateway(other, OUTSIDE) as (url, made):
        asking = client(url)
        dying = asyncio.create_task(generated(asking, memory, "k"))
        await reached.wait()
        for _, task in list(made._running.values()):
            task.cancel()
        with pytest.raises((Transient, asyncio.CancelledError)):
            await dying
        await asking.close()


async def pass_deadline(house: House, memory: Memory, key: str) -> None:
    """The time of the dead process is over."""
    async with house.superuser() as connection:
        await connection.execute(
            "UPDATE records SET body = jsonb_set(body, '{deadline}', '\"2026-01-01T00:00:00Z\"')"
            " WHERE project = $1 AND store = 'model_calls' AND id = $2",
            memory.project,
            derived_id(memory.origin.message_id, "call", key, 0),
        )
    house.restart()

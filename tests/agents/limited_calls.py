"""Limits, tasks at work, and calls under limits."""

from datetime import UTC, datetime
from typing import Any

from agents.gateway_world import Door, developer
from memory_service.house import DELEGATED, PERSON, House, task_body

from counterpoint.client import Gateway, Memory
from counterpoint.proto.limits import StoredLimit
from counterpoint.proto.memory import List, Outgoing, Write

QUESTION = [{"role": "user", "content": "Why did it fail?"}]
AT = datetime(2026, 2, 28, 23, 59, tzinfo=UTC)


async def working(door: Door, project: str, task: str, session: str = "s-1", **fields: Any) -> Memory:
    """The developer at work on a task of a session, without a budget of its own."""
    house = door.house
    routed = await house.routed(project, task)
    write = Write(store="tasks", id=task, body=task_body(task, session_id=session, **fields))
    message = Outgoing(type=DELEGATED, data={"task_id": task})
    done = await house.apply("manager", house.delivery(routed, lives_s=3600), writes=(write,), messages=(message,))
    return developer(door, done.message_ids[0])


async def limit(house: House, project: str, expect: int = 0, **fields: Any) -> StoredLimit:
    """Set a limit as a person does."""
    made = StoredLimit(project=project, by=PERSON, at=AT, **fields)
    write = Write(store="limits", id=made.record_id, body=made.model_dump(mode="json"), expect=expect)
    await house.apply("router", house.standing(project, principal=PERSON), writes=(write,))
    return made


async def spent(house: House, project: str) -> dict[str, dict[str, Any]]:
    """The records of spending under limits, by their wording."""
    origin = house.delivery(await house.routed(project, "t-reader"))
    found = await house.answer("manager", origin, List(store="spend"))
    return {item.body["limit"]: item.body for item in found.items if "limit" in item.body}


async def generated(model_client: Gateway, memory: Memory, key: str, **more: Any) -> Any:
    return await model_client.generate(memory, QUESTION, key=key, deadline_s=60, **more)

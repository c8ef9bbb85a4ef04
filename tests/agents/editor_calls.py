"""Calls of editors with tokens of their principals."""

from typing import Any

from agents.gateway_world import PRICED
from memory_service.house import PERSON, House
from openai import AsyncOpenAI

from counterpoint.proto.commands import CommandReply, CommandRequest, IssueEditorToken
from counterpoint.proto.memory import Write
from counterpoint.proto.principals import Principal

QUESTION: list[Any] = [{"role": "user", "content": "Why did it fail?"}]


async def principal(house: House, name: str, project: str, roles: tuple[Any, ...] = ("submit", "read")) -> str:
    """A principal of the project, whose name is unique in the house."""
    body = Principal(name=f"{name}-{project}", kind="person", projects=(project,), roles=roles)
    write = Write(store="principals", id=body.name, body=body.model_dump(exclude_none=True))
    await house.apply("router", house.standing("default", principal=PERSON), writes=(write,))
    return body.name


async def issued(house: House, project: str, name: str | None = PERSON, **asked: Any) -> CommandReply:
    """The reply to the request of a principal for the token of a tool."""
    command = IssueEditorToken(**{"task_id": "t-1", "minutes": 60, **asked})
    request = CommandRequest(origin=house.standing(project, principal=name), command=command)
    return CommandReply.model_validate_json(await house.door.command("router", request.model_dump_json().encode()))


async def token(house: House, project: str, name: str | None = PERSON) -> str:
    reply = await issued(house, project, name)
    assert reply.token is not None, reply.refusal
    return reply.token


async def completion(url: str, key: str) -> str | None:
    """The reply of the model to a client of OpenAI."""
    async with AsyncOpenAI(base_url=url, api_key=key, max_retries=0) as client:
        made = await client.chat.completions.create(model=PRICED, messages=QUESTION, max_tokens=100)
        return made.choices[0].message.content

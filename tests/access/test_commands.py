"""Commands: each by its own right, executed once, and the forms of the release before mean the same."""

import pytest
from memory_service.house import PERSON, House
from memory_service.learning_project import ingest

from counterpoint.proto.commands import (
    ChangeEmbeddingModel,
    Command,
    CommandReply,
    CommandRequest,
    EraseContent,
    IssueGatewayToken,
    RebuildProjection,
    RetryDeadLetter,
    TakeBackMemory,
)
from counterpoint.proto.ids import document_id, new_id
from counterpoint.proto.memory import Erase, Origin, TakeBack

SOURCE = "runbook.md"


async def send(house: House, origin: Origin, command: Command, caller: str = "router") -> CommandReply:
    request = CommandRequest(origin=origin, command=command)
    return CommandReply.model_validate_json(await house.door.command(caller, request.model_dump_json().encode()))


def take_back(kind: str = "quarantine") -> TakeBackMemory:
    wish = TakeBack.model_validate({"kind": kind, "store": "documents", "id": document_id(SOURCE), "reason": "wrong"})
    return TakeBackMemory(id=new_id(), wish=wish)


def erase() -> EraseContent:
    return EraseContent(id=new_id(), wish=Erase(scope="source", what=SOURCE, reason="it was asked for"))


COMMANDS: tuple[Command, ...] = (
    take_back(),
    erase(),
    RetryDeadLetter(id="l-1", version=1),
    RebuildProjection(tier="graph"),
    ChangeEmbeddingModel(act="drop"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.op)
async def test_a_command_needs_the_right_of_its_store(house: House, project: str, command: Command) -> None:
    for caller in ("router", "developer"):
        reply = await send(house, house.standing(project, principal="nobody"), command, caller)
        assert reply.refusal is not None
        assert reply.refusal.kind == "denied"
        assert reply.refusal.id is not None


async def test_a_take_back_is_kept_under_the_id_of_its_command(house: House, project: str) -> None:
    await ingest(house, project, "Restart the pump.", SOURCE)
    command = take_back()
    origin = house.standing(project, principal=PERSON)
    reply = await send(house, origin, command)
    assert reply.refusal is None
    assert reply.commit is not None
    assert reply.commit.status == "done"
    kept = await house.body(project, "quarantines", command.id)
    assert kept is not None
    assert (kept["kind"], kept["by"]) == ("quarantine", PERSON)


async def test_a_document_is_erased(house: House, project: str) -> None:
    await ingest(house, project, "Restart the pump.", SOURCE)
    command = erase()
    reply = await send(house, house.standing(project, principal=PERSON), command)
    assert reply.refusal is None
    kept = await house.body(project, "erasures", command.id)
    assert kept is not None
    assert kept["state"] == "erased"


async def test_commands_on_missing_records_are_refused_as_not_found(house: House, project: str) -> None:
    for command in (take_back(), erase(), RetryDeadLetter(id="l-1", version=1)):
        reply = await send(house, house.standing(project, principal=PERSON), command)
        assert reply.refusal is not None
        assert (reply.refusal.kind, reply.refusal.code) == ("permanent", "not_found")


async def test_a_gateway_token_is_for_the_delivery_that_asks(house: House, project: str) -> None:
    delivery = house.delivery(await house.delegated(project, "t-1"))
    token = (await send(house, delivery, IssueGatewayToken(purpose="model"), "developer")).token
    assert token
    refused = await send(house, house.standing(project), IssueGatewayToken(purpose="model"), "developer")
    assert refused.token is None
    assert refused.refusal is not None

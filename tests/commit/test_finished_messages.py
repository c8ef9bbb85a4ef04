"""A service notes messages as finished for which it has committed nothing."""

from datetime import UTC, datetime, timedelta

from access.attenuation import attenuate
from memory_service.house import House

from counterpoint.proto.commands import CommandReply, CommandRequest, FinishMessages
from counterpoint.proto.memory import Origin


async def finish(house: House, caller: str, origin: Origin, *ids: str) -> CommandReply:
    request = CommandRequest.model_validate({"origin": origin, "command": FinishMessages.model_validate({"ids": ids})})
    return CommandReply.model_validate_json(await house.door.command(caller, request.model_dump_json().encode()))


async def unfinished(house: House, project: str) -> int:
    """The number of messages that a stream which lost everything makes pending again."""
    now = datetime.now(UTC)
    async with house.database.writing(project) as connection:
        await connection.execute("DELETE FROM pending WHERE project = $1", project)
        restored: int = await connection.fetchval(
            "SELECT restore_lost($1, 'tasks', $2, NULL, $3)", project, now + timedelta(days=1), now - timedelta(days=1)
        )
    return restored


async def test_a_finished_message_is_not_published_again(house: House, project: str) -> None:
    first, second = await house.delegated(project, "t-1"), await house.delegated(project, "t-2")
    assert await unfinished(house, project) == 2
    origin = house.delivery(second)
    assert await finish(house, "developer", origin, first, second) == CommandReply()
    assert await finish(house, "developer", origin, first, second) == CommandReply()
    assert await unfinished(house, project) == 0
    await house.sequencer.once()
    assert (await house.verify(project))["ok"]


async def test_only_messages_of_the_caller_and_its_project_are_finished(house: House, project: str) -> None:
    other = f"{project}-2"
    theirs, managers, own = (
        await house.delegated(other, "t-1"),
        await house.routed(project, "t-2"),
        await house.delegated(project, "t-3"),
    )
    await finish(house, "developer", house.delivery(own), theirs, managers, own)
    assert await unfinished(house, other) == 1
    assert await unfinished(house, project) == 1


async def test_finishing_needs_a_capability_that_is_not_narrowed(house: House, project: str) -> None:
    delegated = await house.delegated(project, "t-1")
    origin = house.delivery(delegated)
    assert origin.capability is not None
    narrow = attenuate(origin.capability, stores=["chunks"])
    reply = await finish(house, "developer", origin.model_copy(update={"capability": narrow}), delegated)
    assert reply.refusal is not None
    reply = await finish(house, "manager", origin, delegated)
    assert reply.refusal is not None
    assert await unfinished(house, project) == 1

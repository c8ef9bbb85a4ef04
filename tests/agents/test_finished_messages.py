"""Messages that need nothing from the router are reported to memory as finished, together."""

from agents.router_house import House

from counterpoint.client import Memory
from counterpoint.proto.commands import FINISHED_MAX
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Commit, Write
from counterpoint.proto.messages import Message
from counterpoint.proto.tasks import TaskCancelled


async def handled(house: House, commit: Commit, project: str, number: int = 1) -> list[str]:
    """Handle messages that have this commit; return their ids."""

    async def handler(message: Message, memory: Memory) -> Commit:
        return commit

    ids = [new_id() for _ in range(number)]
    for message_id in ids:
        memory = house.memory(message_id, project=project)
        assert await house.finished.of(handler)(TaskCancelled(task_id="t-1", by="alice", reason=""), memory) is commit
    return ids


async def test_messages_without_a_commit_are_reported_once_for_each_project() -> None:
    house = House()
    ours, theirs = await handled(house, Commit(), "orders", 3), await handled(house, Commit(), "billing")
    await handled(house, Commit(writes=(Write(store="webhook_deliveries", id="w-1", body={}),)), "orders")
    assert not house.asked
    await house.finished.report()
    assert [list(map(str, command.ids)) for command in house.asked] == [ours, theirs]
    await house.finished.report()
    assert len(house.asked) == 2


async def test_more_messages_than_a_command_holds_are_reported_in_several() -> None:
    house = House()
    await handled(house, Commit(), "orders", FINISHED_MAX + 1)
    await house.finished.report()
    assert [len(command.ids) for command in house.asked] == [FINISHED_MAX, 1]


async def test_a_report_that_memory_does_not_take_ends_nothing() -> None:
    house = House()
    await handled(house, Commit(), "orders")
    house.away = True
    await house.finished.report()
    house.away = False
    (later,) = await handled(house, Commit(), "orders")
    await house.finished.report()
    assert [list(map(str, command.ids)) for command in house.asked] == [[later]]

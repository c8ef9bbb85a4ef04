"""Messages that a bus has lost go back to pending, on a real PostgreSQL: all of them, by no more looks than needed."""

from datetime import UTC, datetime, timedelta
from typing import Any

from memory_service.house import DUE, House, task_body

from counterpoint.bus.stream_api import StreamInfo
from counterpoint.memory.maintenance.reconcile import Reconciler
from counterpoint.memory.maintenance.retention import delete_expired
from counterpoint.proto.memory import Outgoing, Write

HOUR, RETENTION = timedelta(hours=1), timedelta(days=7)


class Bus:
    """Streams that were all made at one time."""

    def __init__(self, created: datetime) -> None:
        self.created = created

    async def stream_info(self, stream: str) -> StreamInfo:
        return StreamInfo(self.created, None, 0, self.created)


class IdleRelay:
    """A relay that has nothing under way."""

    cleared = True
    cuts: dict[str, int] = {}

    def incarnation(self, stream: str, created: datetime, last_seq: int) -> None:
        """It publishes nothing."""


def reconciler(house: House, bus: Any) -> Reconciler:
    relayed: Any = IdleRelay()
    return Reconciler(house.database, bus, relayed, RETENTION)


async def arrived(house: House, project: str, sent_ago: timedelta, due_ago: timedelta | None = None) -> None:
    """All that was sent in the project is known to be on the bus, and was sent and came due so long ago."""
    now = datetime.now(UTC)
    due_at = None if due_ago is None else now - due_ago
    async with house.superuser() as connection:
        await connection.execute("DELETE FROM pending WHERE project = $1", project)
        await connection.execute(
            "UPDATE messages SET at = $2, due_at = CASE WHEN timer IS NOT NULL THEN $3::timestamptz END"
            " WHERE project = $1",
            project,
            now - sent_ago,
            due_at,
        )


async def pending_types(house: House, project: str) -> set[str]:
    """The types of what is to be sent again."""
    async with house.superuser() as connection:
        found = await connection.fetch(
            "SELECT m.type FROM pending p JOIN messages m ON m.id = p.message_id WHERE p.project = $1", project
        )
    return {row["type"] for row in found}


async def timed(house: House, project: str) -> str:
    """A task with a timer of the manager's; the timer's id."""
    manager = house.delivery(await house.routed(project, "t-1"))
    at = datetime.now(UTC) + timedelta(days=30)
    timer = Outgoing(type=DUE, data={"task_id": "t-1"}, task_id="t-1", due_at=at, timer="one")
    write = Write(store="tasks", id="t-1", body=task_body("t-1"))
    return (await house.apply("manager", manager, writes=(write,), messages=(timer,))).message_ids[0]


async def test_messages_older_than_the_streams_are_checked_once_per_life_of_the_streams(
    house: House, project: str
) -> None:
    bus = Bus(datetime.now(UTC) - HOUR)
    rounds = reconciler(house, bus)
    await house.routed(project, "t-1")
    await arrived(house, project, 2 * HOUR)
    await rounds.reconcile()
    assert await pending_types(house, project) == {"counterpoint.task.routed.v1"}
    await arrived(house, project, 2 * HOUR)
    async with house.superuser() as connection:
        await connection.execute("DELETE FROM restored")
    await rounds.reconcile()
    assert not await pending_types(house, project)
    bus.created = datetime.now(UTC) - HOUR / 2
    await rounds.reconcile()
    assert await pending_types(house, project) == {"counterpoint.task.routed.v1"}


async def test_while_the_streams_are_new_every_round_looks(house: House, project: str) -> None:
    rounds = reconciler(house, Bus(datetime.now(UTC)))
    await rounds.reconcile()
    await house.routed(project, "t-1")
    await arrived(house, project, 2 * HOUR)
    await rounds.reconcile()
    assert await pending_types(house, project) == {"counterpoint.task.routed.v1"}


async def test_a_timer_counts_from_when_it_was_due_however_long_ago_it_was_set(house: House, project: str) -> None:
    await timed(house, project)
    await arrived(house, project, timedelta(days=30), 2 * HOUR)
    await reconciler(house, Bus(datetime.now(UTC) - HOUR)).reconcile()
    assert await pending_types(house, project) == {DUE}


async def test_a_cancellation_is_kept_as_long_as_its_timer(house: House, project: str) -> None:
    timer = await timed(house, project)
    await house.apply("manager", house.delivery(await house.reported(project, "t-1")), cancel_timers=("one",))
    async with house.superuser() as connection:
        await connection.execute("UPDATE inbox SET at = now() - interval '8 days' WHERE project = $1", project)
    rounds = reconciler(house, Bus(datetime.now(UTC) - HOUR))
    await delete_expired(house.database, RETENTION)
    async with house.superuser() as connection:
        left = await connection.fetch("SELECT message_id, outcome FROM inbox WHERE project = $1", project)
    assert [(row["message_id"], row["outcome"]) for row in left] == [(timer, "cancelled")]
    await arrived(house, project, timedelta(days=30), 2 * HOUR)
    await rounds.reconcile()
    assert not await pending_types(house, project)

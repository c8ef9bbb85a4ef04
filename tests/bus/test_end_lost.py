"""A stream that comes back without its newest messages, as after a power cut: these are published again, no others."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from bus.small_house import SmallHouse, alive, eventually, noted, opened, project, route

from counterpoint.bus import Service
from counterpoint.bus.connection import Connection
from counterpoint.bus.permissions import HOUSE
from counterpoint.client import Memory, send
from counterpoint.guard.capabilities import Keyring
from counterpoint.guard.policy import policy
from counterpoint.memory.commit.relay import Relay
from counterpoint.memory.maintenance.reconcile import Reconciler
from counterpoint.memory.provenance.read_sets import OriginCache
from counterpoint.memory.record.database import Database
from counterpoint.memory.settings import MemorySettings
from counterpoint.proto import subjects
from counterpoint.proto.memory import Commit
from counterpoint.proto.messages import utc_now
from counterpoint.proto.tasks import TaskDue, TaskRouted

KEPT, LOST, NEW = 4, 5, 6
STREAM = Path("jetstream", HOUSE, "streams", subjects.TASKS)


@asynccontextmanager
async def stopped(house: SmallHouse, router: Service) -> AsyncIterator[Path]:
    """The bus stands still for the length of the block; gives the folder of the tasks' stream."""
    await house.nats.stop()
    await eventually(lambda: not router.connection.connected)
    try:
        yield house.nats.directory / STREAM
    finally:
        await house.nats.start()
        await eventually(lambda: router.connection.connected)
        if house.memory.running:
            await eventually(house.memory.answers)


def put_back(copy: Path, place: Path) -> None:
    """Replace `place` by its copy."""
    shutil.rmtree(place)
    shutil.copytree(copy, place)


@asynccontextmanager
async def losing(house: SmallHouse, router: Service, folder: Path, part: str = "") -> AsyncIterator[None]:
    """Lose what enters the tasks' stream, or a part of it, during the block; `folder` takes a copy."""
    async with stopped(house, router) as stream:
        shutil.copytree(stream / part, folder / "copy")
    yield
    async with stopped(house, router) as stream:
        put_back(folder / "copy", stream / part)


def names(word: str, count: int) -> list[str]:
    """Descriptions of so many tasks."""
    return [f"{word} {n}" for n in range(count)]


async def routed(house: SmallHouse, router: Service, place: str, descriptions: list[str]) -> None:
    """Route tasks; all of them are in their stream then, and the record knows how far it has come."""
    published = await in_stream(house, place) + len(descriptions)
    for description in descriptions:
        await route(router, place, description)
    sent = "SELECT count(*) FROM pending JOIN messages ON id = message_id AND type = $2 WHERE pending.project = $1"

    async def settled() -> bool:
        return await house.record.fetchval(sent, place, TaskRouted.TYPE) == 0

    await eventually(settled)
    assert await in_stream(house, place) == published


async def in_stream(house: SmallHouse, place: str, message_type: str = TaskRouted.TYPE) -> int:
    """Return the number of messages of a type and project in the stream."""
    subject = subjects.of(message_type, place)
    async with house.client("provisioner") as client:
        info = await client.jetstream().stream_info(subjects.TASKS, subjects_filter=subject)
    return (info.state.subjects or {}).get(subject, 0)


async def arrived(house: SmallHouse, place: str, count: int, message_type: str = TaskRouted.TYPE) -> None:
    """Wait until the stream holds so many."""

    async def there() -> bool:
        return await in_stream(house, place, message_type) >= count

    await eventually(there)


async def handled(house: SmallHouse, place: str, count: int) -> set[str]:
    """A manager lives until so many messages of the project are finished; which it was given."""
    seen = set[str]()
    manager = house.service("manager")

    @manager.on(TaskRouted)
    async def on_routed(message: TaskRouted, memory: Memory) -> Commit:
        seen.add(message.task.description)
        return noted(memory)

    @manager.on(TaskDue)
    async def on_due(message: TaskDue, memory: Memory) -> Commit:
        seen.add(message.timer)
        return noted(memory)

    async def finished() -> bool:
        return await house.finished(place, "manager") >= count

    async with alive(manager):
        await eventually(finished)
    return seen


async def test_lost_messages_are_published_again_and_those_kept_are_not(
    house: SmallHouse, router: Service, tmp_path: Path
) -> None:
    place = project()
    await routed(house, router, place, names("kept", KEPT))
    async with losing(house, router, tmp_path):
        await routed(house, router, place, names("lost", LOST))
    await arrived(house, place, KEPT + LOST)
    seen = await handled(house, place, KEPT + LOST)
    assert seen == {*names("kept", KEPT), *names("lost", LOST)}
    assert await house.actions(place) == KEPT + LOST
    assert await in_stream(house, place) == KEPT + LOST


async def test_messages_handled_before_the_loss_are_not_published_again(
    house: SmallHouse, router: Service, tmp_path: Path
) -> None:
    place = project()
    await routed(house, router, place, names("kept", KEPT))
    async with losing(house, router, tmp_path):
        await routed(house, router, place, names("lost", LOST))
        await handled(house, place, KEPT + LOST)
    await routed(house, router, place, ["new"])
    seen = await handled(house, place, KEPT + LOST + 1)
    assert "new" in seen
    assert not seen & set(names("lost", LOST))
    assert await house.actions(place) == KEPT + LOST + 1
    assert await in_stream(house, place) == KEPT + 1


async def test_a_consumer_that_remembers_more_than_its_stream_skips_nothing(
    house: SmallHouse, router: Service, tmp_path: Path
) -> None:
    place = project()
    await routed(house, router, place, names("kept", KEPT))
    async with losing(house, router, tmp_path, "msgs"):
        await routed(house, router, place, names("done", LOST))
        await handled(house, place, KEPT + LOST)
        await routed(house, router, place, names("lost", LOST))
    seen = await handled(house, place, KEPT + 2 * LOST)
    assert seen >= set(names("lost", LOST))
    assert await house.actions(place) == KEPT + 2 * LOST


async def ringing(house: SmallHouse, router: Service, place: str, due_s: float) -> None:
    """Have `NEW` timers set that come due in so many seconds."""
    manager = house.service("manager")

    @manager.on(TaskRouted)
    async def on_routed(message: TaskRouted, memory: Memory) -> Commit:
        due_at = utc_now() + timedelta(seconds=due_s)
        timers = [TaskDue(task_id=message.task_id, timer=name) for name in names("timer", NEW)]
        messages = tuple(send(due, due_at=due_at, timer=f"{due.task_id} {due.timer}") for due in timers)
        return opened(message, memory).model_copy(update={"messages": messages})

    async with alive(manager):
        await route(router, place, "clock")
        await eventually(lambda: house.finished(place, "manager"))


@asynccontextmanager
async def relaying(house: SmallHouse) -> AsyncIterator[tuple[Relay, Reconciler]]:
    """Memory's relay and reconciler in this process, neither of them running."""
    given = {name.lower().removeprefix("counterpoint_"): value for name, value in house.memory.env.items()}
    settings = MemorySettings(**{name: given[name] for name in MemorySettings.model_fields if name in given})  # type: ignore[arg-type]
    connection = Connection("memory", settings)
    record = Database(settings.postgres_url.get_secret_value(), pool_size=3, connect_timeout_s=5)
    keyring, life_s = Keyring(settings.signing_keys), settings.capability_life_s
    relay = Relay(record, connection, policy(), keyring, OriginCache(100), sweep_age_s=0.5, capability_life_s=life_s)
    await connection.open()
    await record.open()
    try:
        yield relay, Reconciler(record, connection, relay, timedelta(seconds=settings.retention_s))
    finally:
        await record.close()
        await connection.close()


async def test_a_publication_before_the_next_check_hides_no_loss(
    house: SmallHouse, router: Service, tmp_path: Path
) -> None:
    place = project()
    await ringing(house, router, place, due_s=6.0)
    await routed(house, router, place, names("kept", KEPT))
    async with stopped(house, router) as stream:
        shutil.copytree(stream, tmp_path / "copy")
    await routed(house, router, place, names("lost", LOST))
    async with relaying(house) as (relay, reconciler):
        await reconciler.reconcile()
        await house.memory.stop()
        async with stopped(house, router) as stream:
            put_back(tmp_path / "copy", stream)
        assert not await in_stream(house, place, TaskDue.TYPE)
        running = asyncio.create_task(relay.run())
        await arrived(house, place, NEW, TaskDue.TYPE)
        await reconciler.reconcile()
        await arrived(house, place, 1 + KEPT + LOST)
        running.cancel()
        await asyncio.wait({running})
    await house.memory.start()
    seen = await handled(house, place, 1 + KEPT + LOST + NEW)
    assert seen == {*names("kept", KEPT), *names("lost", LOST), *names("timer", NEW)}
    assert await house.actions(place) == 1 + KEPT + LOST + NEW
    assert await in_stream(house, place) == 1 + KEPT + LOST
    assert await in_stream(house, place, TaskDue.TYPE) == NEW

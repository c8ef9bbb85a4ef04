"""Permissions on a real NATS: exactly what the contract allows works, and everything else is denied."""

import json
from itertools import product

import pytest
from bus.lone_bus import Bus, bind, drained
from bus.plain import login
from bus.rights import MINE, OTHERS, USERS, publications, subscriptions
from nats.js.api import ConsumerConfig

from counterpoint.bus.permissions import users


def test_the_tables_name_every_user_there_is() -> None:
    assert sorted(users()) == sorted(USERS)


@pytest.mark.parametrize("user", USERS)
async def test_a_user_publishes_exactly_the_subjects_of_the_contract(bus: Bus, user: str) -> None:
    async with login(bus.port, user, bus.passwords[user]) as plain:
        wrong = [
            (subject, f"{user} is in {sorted(allowed)}: {user in allowed}")
            for subject, allowed in publications()
            if await plain.may_publish(subject) != (user in allowed)
        ]
    assert wrong == []


@pytest.mark.parametrize("queue", ["", "workers"])
@pytest.mark.parametrize("user", USERS)
async def test_a_user_subscribes_to_exactly_the_subjects_of_the_contract(bus: Bus, user: str, queue: str) -> None:
    async with login(bus.port, user, bus.passwords[user]) as plain:
        wrong = [
            (subject, f"{user} is in {sorted(allowed)}: {user in allowed}")
            for subject, allowed in subscriptions()
            if await plain.may_subscribe(subject, queue) != (user in allowed)
        ]
    assert wrong == []


@pytest.mark.parametrize("user", [user for user in USERS if user not in ("memory", "publisher", "provisioner")])
async def test_no_publication_of_a_user_changes_a_stream_or_consumer(bus: Bus, user: str) -> None:
    before = await bus.state()
    async with login(bus.port, user, bus.passwords[user]) as plain:
        for subject, _ in publications():
            await plain.may_publish(subject, b"{}")
    assert await bus.state() == before


@pytest.mark.parametrize("user", ["router", "manager", "developer", "lineage", "publisher", "observer"])
@pytest.mark.parametrize("deliver", [None, "tasks.demo.routed", "_INBOX_{user}.stolen"])
async def test_no_user_can_create_a_consumer(bus: Bus, user: str, deliver: str | None) -> None:
    to = deliver and deliver.format(user=user)
    config = ConsumerConfig(durable_name="mine", deliver_subject=to, filter_subject="tasks.demo.routed")
    body = json.dumps({"stream_name": "TASKS", "config": config.as_dict()}).encode()
    before = await bus.state()
    async with await bus.client(user) as client:
        for subject in (
            "CREATE.TASKS",
            "CREATE.TASKS.mine",
            "CREATE.TASKS.mine.tasks.demo.routed",
            "DURABLE.CREATE.TASKS.mine",
        ):
            with pytest.raises(TimeoutError):
                await client.request(f"$JS.API.CONSUMER.{subject}", body, timeout=0.1)
    assert await bus.state() == before


async def test_a_service_gets_its_own_deliveries_and_no_others(bus: Bus) -> None:
    async with await bus.client("memory") as memory:
        for event in ("delegated", "routed"):
            await memory.jetstream().publish(f"tasks.{MINE}.{event}", event.encode(), stream="TASKS")
    async with await bus.client("developer") as developer:
        subscription = await bind(developer.jetstream(), "developer")
        got = [message async for message in drained(subscription)]
        assert {message.subject for message in got} == {f"tasks.{MINE}.delegated"}
        for message in got:
            await message.ack_sync()
        theirs = await bind(developer.jetstream(), "manager")
        with pytest.raises(TimeoutError):
            await theirs.fetch(1, timeout=0.5)
        request = json.dumps({"last_by_subj": f"tasks.{MINE}.routed"}).encode()
        for subject in ("STREAM.MSG.GET.TASKS", "DIRECT.GET.TASKS"):
            with pytest.raises(TimeoutError):
                await developer.request(f"$JS.API.{subject}", request, timeout=0.2)


async def test_an_observer_sees_live_messages_of_its_own_project_only(bus: Bus) -> None:
    async with login(bus.port, "observer", bus.passwords["observer"]) as observer:
        await observer.listen(f"live.*.{MINE}.>")
        async with await bus.client("memory") as memory:
            for project, subject in product((MINE, OTHERS), ("tasks.{}.routed", "decisions.{}.judge", "dead.{}")):
                await memory.jetstream().publish(subject.format(project), b"{}")
            await memory.jetstream().publish(f"intake.{MINE}.task", b"{}")
        assert await observer.may_subscribe(f"live.tasks.{MINE}.>")
    assert observer.received == [f"live.tasks.{MINE}.routed", f"live.decisions.{MINE}.judge"]

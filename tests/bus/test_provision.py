"""Streams and consumers: made once from one spec; a server that differs is told about, loudly, and left as it is."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from bus.lone_bus import PASSWORDS, login
from bus.small_house import SmallHouse, alive, noted
from nats.js import JetStreamContext
from nats.js.api import RePublish, StoreCompression
from nats.js.errors import APIError

from counterpoint.bus.permissions import nats_config
from counterpoint.bus.provision import Drift, provision
from counterpoint.bus.streams import consumer_specs, stream_specs
from counterpoint.client import Memory
from counterpoint.guard.policy import policy
from counterpoint.local.nats import NatsServer, run_nats
from counterpoint.proto import subjects
from counterpoint.proto.memory import Commit
from counterpoint.proto.tasks import TaskRouted

USER = "provisioner"
SMALL = 16 * 1024**2


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with run_nats(tmp_path, nats_config(PASSWORDS)) as server:
        yield server


@pytest.fixture
async def js(bus: NatsServer) -> AsyncIterator[JetStreamContext]:
    async with await login(bus, USER) as client:
        yield client.jetstream()


async def test_provisioning_twice_changes_nothing(bus: NatsServer, js: JetStreamContext) -> None:
    await provision(bus.url, USER, PASSWORDS[USER])
    first = [await js.stream_info(spec.name) for spec in stream_specs()]
    await provision(bus.url, USER, PASSWORDS[USER])
    second = [await js.stream_info(spec.name) for spec in stream_specs()]
    assert [info.config for info in first] == [info.config for info in second]
    assert {info.config.name for info in first} == set(subjects.STREAMS)


async def test_checkpoints_are_kept_for_good(bus: NatsServer, js: JetStreamContext) -> None:
    await provision(bus.url, USER, PASSWORDS[USER])
    async with await login(bus, "memory") as memory:
        stored = await memory.jetstream().publish(subjects.CHECKPOINT, b"a note", stream=subjects.CHECKPOINTS)
    for taken_away in (js.delete_msg(subjects.CHECKPOINTS, stored.seq), js.purge_stream(subjects.CHECKPOINTS)):
        with pytest.raises(APIError):
            await taken_away
    assert (await js.get_msg(subjects.CHECKPOINTS, stored.seq)).data == b"a note"
    assert (await js.stream_info(subjects.CHECKPOINTS)).config.max_age == 0


@pytest.mark.parametrize(
    ("stream", "changes", "named"),
    [
        ("TASKS", {"max_age": 600.0}, "stream TASKS: max_age is 600"),
        ("CHANGES", {"duplicate_window": 1.0}, "stream CHANGES: duplicate_window is 1.0"),
        ("INTAKE", {"republish": RePublish(src=">", dest="live.>")}, "stream INTAKE: republish is RePublish"),
        ("DEAD", {"subjects": ["dead.*"]}, "stream DEAD: subjects is"),
    ],
)
async def test_a_changed_stream_is_named_and_left_alone(
    bus: NatsServer, js: JetStreamContext, stream: str, changes: dict[str, object], named: str
) -> None:
    await provision(bus.url, USER, PASSWORDS[USER])
    config = (await js.stream_info(stream)).config
    await js.update_stream(config.evolve(**changes))
    with pytest.raises(Drift) as caught:
        await provision(bus.url, USER, PASSWORDS[USER])
    assert named in str(caught.value)
    assert str(caught.value).count(";") == 0, "nothing else is named"
    changed = (await js.stream_info(stream)).config
    assert changed != config


async def test_streams_are_compressed_also_those_of_the_release_before(bus: NatsServer, js: JetStreamContext) -> None:
    await provision(bus.url, USER, PASSWORDS[USER])
    config = (await js.stream_info("TASKS")).config
    await js.update_stream(config.evolve(compression=StoreCompression.NONE))
    await provision(bus.url, USER, PASSWORDS[USER])
    compressed = {spec.name: (await js.stream_info(spec.name)).config.compression for spec in stream_specs()}
    assert set(compressed.values()) == {StoreCompression.S2}, compressed


async def test_a_stream_gets_its_size_anew_and_is_not_made_smaller_than_its_content(
    bus: NatsServer, js: JetStreamContext
) -> None:
    await provision(bus.url, USER, PASSWORDS[USER], streams_bytes=SMALL)
    async with await login(bus, "memory") as memory:
        for _ in range(9):
            await memory.jetstream().publish("tasks.demo.routed", b"0" * 200_000)
    await provision(bus.url, USER, PASSWORDS[USER], streams_bytes=SMALL // 16)
    tasks, dead = await js.stream_info("TASKS"), await js.stream_info("DEAD")
    assert tasks.state.messages == 9
    assert tasks.config.max_bytes == tasks.state.bytes
    assert dead.config.max_bytes == SMALL // 16 // 32


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"ack_wait_s": 9.0}, "ack_wait is 4.0, expected 9.0"),
        ({"max_deliver": 5}, "max_deliver is 60, expected 5"),
        ({"max_ack_pending": 7}, "max_ack_pending is 1000, expected 7"),
        ({"filters": ("tasks.acme.>",)}, "filter_subjects is"),
    ],
)
async def test_changed_consumer_settings_are_not_silently_ignored(
    bus: NatsServer, changes: dict[str, object], named: str
) -> None:
    await provision(bus.url, USER, PASSWORDS[USER])
    specs = tuple(
        replace(spec, **changes) if (spec.stream, spec.durable) == ("TASKS", "manager") else spec  # type: ignore[arg-type]
        for spec in consumer_specs(policy())
    )
    with pytest.raises(Drift) as caught:
        await provision(bus.url, USER, PASSWORDS[USER], specs)
    assert f"consumer TASKS/manager: {named}" in str(caught.value)
    assert str(caught.value).count(";") == 0


async def test_a_consumer_of_an_older_release_is_widened_and_goes_on_from_where_it_was(
    bus: NatsServer, js: JetStreamContext
) -> None:
    older = tuple(
        replace(spec, filters=spec.filters[1:]) if (spec.stream, spec.durable) == ("TASKS", "manager") else spec
        for spec in consumer_specs(policy())
    )
    await provision(bus.url, USER, PASSWORDS[USER], older)
    before = await js.consumer_info("TASKS", "manager")
    await provision(bus.url, USER, PASSWORDS[USER])
    after = await js.consumer_info("TASKS", "manager")
    (wanted,) = [spec for spec in consumer_specs(policy()) if (spec.stream, spec.durable) == ("TASKS", "manager")]
    assert set(after.config.filter_subjects or ()) == set(wanted.filters)
    assert after.created == before.created


async def test_a_service_declares_nothing(house: SmallHouse) -> None:
    manager = house.service("manager")

    @manager.on(TaskRouted)
    async def routed(message: TaskRouted, memory: Memory) -> Commit:
        return noted(memory)

    async with house.client(USER) as client:
        js = client.jetstream()
        before = [(await js.stream_info(name)).config for name in subjects.STREAMS]
        async with alive(manager):
            assert [(await js.stream_info(name)).config for name in subjects.STREAMS] == before
            subscribers = manager.connection.broker.subscribers
            assert subscribers
            assert not any(subscriber.stream.declare for subscriber in subscribers)  # type: ignore[attr-defined]


async def test_intake_messages_are_not_republished() -> None:
    assert {spec.name for spec in stream_specs() if spec.live} == {"TASKS", "DECISIONS", "CHANGES"}

"""The intake keeps its word: what it took is there until its consumer has it, whatever another project sends."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from bus.lone_bus import PASSWORDS, login
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DiscardPolicy, PubAck, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import APIError

from counterpoint.bus.permissions import nats_config
from counterpoint.bus.provision import provision
from counterpoint.bus.streams import MESSAGE_BYTES, stream_specs
from counterpoint.local.nats import NatsServer, run_nats
from counterpoint.proto import subjects

USER = "provisioner"
SMALL = 26 * 1024**2
"""Bytes of all streams: a project may have eight messages of a kind wait."""
KINDS = ("task", "outcome", "lineage")
MINE, OTHERS = "alpha", "beta"
_TOO_MANY, _TOO_MUCH = "maximum messages per subject exceeded", "maximum bytes exceeded"
LARGEST = b"0" * (MESSAGE_BYTES - 100)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with run_nats(tmp_path, nats_config(PASSWORDS)) as server:
        yield server


@pytest.fixture
async def publisher(server: NatsServer) -> AsyncIterator[JetStreamContext]:
    """A publisher of every project, on a small bus."""
    await provision(server.url, USER, PASSWORDS[USER], streams_bytes=SMALL)
    async with await login(server, "publisher") as client:
        yield client.jetstream()


@pytest.fixture
async def js(server: NatsServer) -> AsyncIterator[JetStreamContext]:
    async with await login(server, USER) as client:
        yield client.jetstream()


async def _flood(publisher: JetStreamContext, subject: str, body: bytes = LARGEST) -> tuple[list[PubAck], APIError]:
    """Publish until refused; what was acknowledged, and the refusal."""
    stored: list[PubAck] = []
    while True:
        try:
            stored.append(await publisher.publish(subject, body))
        except APIError as refused:
            return stored, refused


async def _waiting(js: JetStreamContext) -> dict[str, int]:
    """Return the number of messages in the intake by subject."""
    return (await js.stream_info(subjects.INTAKE, subjects_filter=">")).state.subjects or {}


async def _take(server: NatsServer, durable: str, count: int) -> list[bytes]:
    """Take so many messages as a service does, and acknowledge them."""
    async with await login(server, durable) as client:
        prefix = subjects.inbox_prefix(durable).encode() + b"."
        pulled = await client.jetstream().pull_subscribe_bind(durable, subjects.INTAKE, inbox_prefix=prefix)
        taken = []
        while len(taken) < count:
            for message in await pulled.fetch(1, timeout=5):
                await message.ack_sync()
                taken.append(message.data)
        return taken


async def test_a_flood_is_refused_and_costs_no_other_project_anything(
    server: NatsServer, publisher: JetStreamContext, js: JetStreamContext
) -> None:
    """Findings 5: before, it took the place of what others had sent and nobody had read."""
    before = [await publisher.publish(f"intake.{OTHERS}.task", b"%d" % n) for n in range(3)]
    floods = {kind: await _flood(publisher, f"intake.{MINE}.{kind}") for kind in KINDS}
    assert {refused.description for _, refused in floods.values()} == {_TOO_MANY}
    after = [await publisher.publish(f"intake.{OTHERS}.{kind}", LARGEST) for kind in KINDS]
    kept = {f"intake.{MINE}.{kind}": len(stored) for kind, (stored, _) in floods.items()}
    assert set(kept.values()) == {8}
    assert await _waiting(js) == {
        **kept,
        f"intake.{OTHERS}.task": len(before) + 1,
        f"intake.{OTHERS}.outcome": 1,
        f"intake.{OTHERS}.lineage": 1,
    }
    assert all(ack.seq for ack in after)
    taken = await _take(server, "router", 3)
    assert taken == [b"0", b"1", b"2"]


async def test_a_refused_project_may_send_again_when_its_messages_are_taken(
    server: NatsServer, publisher: JetStreamContext, js: JetStreamContext
) -> None:
    subject = f"intake.{MINE}.task"
    stored, _ = await _flood(publisher, subject, b"small")
    assert len(await _take(server, "router", len(stored))) == len(stored)
    assert await _waiting(js) == {}, "what has been taken is gone"
    again, refused = await _flood(publisher, subject, b"small")
    assert len(again) == len(stored)
    assert refused.description == _TOO_MANY


async def test_the_intake_of_all_projects_is_bounded_and_drops_no_message(
    publisher: JetStreamContext, js: JetStreamContext
) -> None:
    stored: dict[str, int] = {}
    codes = set()
    for project in ("alpha", "beta"):
        for kind in KINDS:
            subject = f"intake.{project}.{kind}"
            acks, refused = await _flood(publisher, subject)
            stored |= {subject: len(acks)} if acks else {}
            codes.add(refused.description)
    assert codes == {_TOO_MANY, _TOO_MUCH}
    assert await _waiting(js) == stored


async def test_an_id_of_one_project_takes_nothing_from_another(server: NatsServer, publisher: JetStreamContext) -> None:
    """Finding 6: before, the second was a duplicate of the first, and gone."""
    said = {"Nats-Msg-Id": "nightly-2026-11-23"}
    for project in (MINE, OTHERS):
        stored = await publisher.publish(f"intake.{project}.task", project.encode(), headers=said)
        assert not stored.duplicate
    assert await _take(server, "router", 2) == [MINE.encode(), OTHERS.encode()]


async def _older(js: JetStreamContext) -> None:
    """The intake as the last release made it: for a week, whoever reads it, and the oldest makes room."""
    await js.add_stream(
        StreamConfig(
            name=subjects.INTAKE,
            subjects=list(subjects.STREAMS[subjects.INTAKE]),
            retention=RetentionPolicy.LIMITS,
            max_age=7 * 86_400.0,
            max_bytes=SMALL,
            max_msg_size=512 * 1024,
            discard=DiscardPolicy.OLD,
            storage=StorageType.FILE,
            duplicate_window=120.0,
            num_replicas=1,
        )
    )
    router = ConsumerConfig(
        name="router",
        durable_name="router",
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=4.0,
        max_deliver=60,
        max_ack_pending=1000,
        filter_subjects=["intake.*.outcome", "intake.*.task"],
    )
    await js.add_consumer(subjects.INTAKE, router)


async def test_an_upgrade_keeps_every_waiting_message_of_an_older_intake(
    server: NatsServer, js: JetStreamContext
) -> None:
    """Read messages go, unread ones stay: also those above the limit, and those without a consumer."""
    await _older(js)
    async with await login(server, "publisher") as client:
        publisher = client.jetstream()
        for n in range(20):
            await publisher.publish(f"intake.{MINE}.task", b"%d" % n)
        await publisher.publish(f"intake.{OTHERS}.lineage", b"of a run")
        await _take(server, "router", 5)
        await provision(server.url, USER, PASSWORDS[USER], streams_bytes=SMALL)
        assert await _waiting(js) == {f"intake.{MINE}.task": 15, f"intake.{OTHERS}.lineage": 1}
        _, refused = await _flood(publisher, f"intake.{MINE}.task")
        assert refused.description == _TOO_MANY
        assert await _take(server, "router", 15) == [b"%d" % n for n in range(5, 20)]
        assert await _take(server, "lineage", 1) == [b"of a run"]
        await provision(server.url, USER, PASSWORDS[USER], streams_bytes=SMALL)
        stored, _ = await _flood(publisher, f"intake.{MINE}.task", b"small")
        assert len(stored) == 8, "once it was empty, the limit is that of every project"


async def test_a_smaller_intake_drops_nothing(
    server: NatsServer, publisher: JetStreamContext, js: JetStreamContext
) -> None:
    stored, _ = await _flood(publisher, f"intake.{MINE}.task", b"small")
    await provision(server.url, USER, PASSWORDS[USER], streams_bytes=SMALL // 8)
    assert await _waiting(js) == {f"intake.{MINE}.task": len(stored)}
    acks, refused = await _flood(publisher, f"intake.{OTHERS}.task", b"small")
    assert acks
    assert refused.description == _TOO_MANY


async def test_no_file_of_the_bus_is_readable(tmp_path: Path) -> None:
    """Messages that left a stream stay in its file for a while. An unencrypted folder is encrypted from then on."""

    def shown(word: bytes) -> list[Path]:
        return [path for path in tmp_path.rglob("*") if path.is_file() and word in path.read_bytes()]

    config = nats_config(PASSWORDS)
    async with run_nats(tmp_path, config) as plain, await login(plain, "publisher") as client:
        await provision(plain.url, USER, PASSWORDS[USER], streams_bytes=SMALL)
        for n in range(2):
            await client.jetstream().publish(f"intake.{MINE}.task", b"in the open %d" % n)
        await _take(plain, "router", 1)
    assert shown(b"in the open 0"), "it was taken, and is there"
    async with run_nats(tmp_path, config, store_key="of a test") as server, await login(server, "publisher") as client:
        await client.jetstream().publish(f"intake.{MINE}.task", b"behind a door")
        assert await _take(server, "router", 2) == [b"in the open 1", b"behind a door"]
    assert not shown(b"in the open")
    assert not shown(b"behind a door")


def test_the_largest_flood_of_one_project_leaves_room() -> None:
    for exponent in range(29, 34):
        (intake,) = (spec for spec in stream_specs(2**exponent) if spec.name == subjects.INTAKE)
        assert intake.unread
        assert intake.unread * MESSAGE_BYTES * len(KINDS) <= intake.max_bytes * 3 // 4
        assert sum(spec.max_bytes for spec in stream_specs(2**exponent)) <= 2**exponent

"""Provisioning: create streams and consumers by their specs, or fail naming every difference."""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import nats
import structlog
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    DiscardPolicy,
    RePublish,
    RetentionPolicy,
    StorageType,
    StoreCompression,
    StreamConfig,
    StreamSource,
)
from nats.js.errors import NotFoundError

from counterpoint.bus.first_connection import NoAnswer, RefusedByServer, end_job, first_connection
from counterpoint.bus.login import UNREACHABLE, connect_once, may_answer_later, unreachable
from counterpoint.bus.settings import ProvisionSettings
from counterpoint.bus.streams import (
    DUPLICATE_WINDOW_S,
    MESSAGE_BYTES,
    STREAMS_BYTES,
    ConsumerSpec,
    StreamSpec,
    consumer_specs,
    stream_specs,
)
from counterpoint.guard.policy import policy
from counterpoint.proto import subjects
from counterpoint.proto.errors import CounterpointError

log = structlog.get_logger()

_ALWAYS = ("subjects", "storage", "num_replicas", "deny_delete", "deny_purge", "republish")
_KEEPING = ("retention", "max_age", "max_msg_size", "discard", "duplicate_window")
_STORAGE = ("max_bytes", "max_msgs_per_subject", "compression")
_INTEREST = (*_STORAGE, *_KEEPING, "discard_new_per_subject", "sources")
"""Stream settings: those that never change, the retention, the storage, and all that an interest stream may be given.

Of other streams only the storage is changed."""
_RELOAD_S = 3.0
"""Seconds for which a server may take to load the accounts of its configuration."""
_CLOSED_BYTES = 1
"""The `max_bytes` of a stream that refuses every message."""


class Drift(CounterpointError):
    """A stream or consumer on the server differs from its spec; nothing was changed."""


async def provision(
    url: str,
    user: str,
    login: str | Mapping[str, Any],
    consumers: Sequence[ConsumerSpec] | None = None,
    tls: ssl.SSLContext | None = None,
    streams_bytes: int = STREAMS_BYTES,
) -> None:
    """Create missing streams and consumers and resize streams, never below their content.

    `login` is the password, or another login as `BusSettings.login` returns it. `consumers` default to those of the
    policy. Raises `Drift` naming every setting that differs from the spec.
    """
    given = {"user": user, "password": login} if isinstance(login, str) else login
    inbox_prefix = subjects.inbox_prefix(user).encode()
    client = await nats.connect(url, **given, inbox_prefix=inbox_prefix, connect_timeout=5, tls=tls)
    await provision_by(client, consumers, streams_bytes=streams_bytes)


async def provision_by(client: Client, consumers: Sequence[ConsumerSpec] | None = None, *, streams_bytes: int) -> None:
    """Provision through a connected client, and close it. Raises `Drift`."""
    try:
        js = client.jetstream(timeout=10)
        differences: list[str] = []
        streams = sorted(stream_specs(streams_bytes), key=lambda spec: spec.unread is not None)
        for stream in streams:
            differences += await _stream(js, stream)
        for consumer in consumer_specs(policy()) if consumers is None else consumers:
            differences += await _consumer(js, consumer)
        if differences:
            raise Drift("; ".join(differences))
        for stream in streams:
            await _settle(js, stream)
    finally:
        await client.close()


def stream_config(spec: StreamSpec) -> StreamConfig:
    """Return the server configuration of a stream.

    Deduplication can be turned off only in a stream with a source, so an interest stream sources an empty subject.
    """
    keeps = spec.unread is not None
    source, subject = subjects.EMPTY_SOURCE
    return StreamConfig(
        name=spec.name,
        subjects=list(spec.subjects),
        retention=RetentionPolicy.INTEREST if keeps else RetentionPolicy.LIMITS,
        max_age=spec.max_age_s,
        max_bytes=spec.max_bytes,
        max_msg_size=MESSAGE_BYTES,
        max_msgs_per_subject=-1 if spec.unread is None else spec.unread,
        discard=DiscardPolicy.NEW if keeps else DiscardPolicy.OLD,
        discard_new_per_subject=keeps,
        storage=StorageType.FILE,
        compression=StoreCompression.S2,
        duplicate_window=0 if keeps else DUPLICATE_WINDOW_S,
        sources=[StreamSource(name=source, filter_subject=subject)] if keeps else None,
        num_replicas=1,
        deny_delete=spec.sealed,
        deny_purge=spec.sealed,
        republish=RePublish(src=">", dest=subjects.live(">")) if spec.live else None,
    )


def consumer_config(spec: ConsumerSpec) -> ConsumerConfig:
    """Return the server configuration of a consumer."""
    return ConsumerConfig(
        name=spec.durable,
        durable_name=spec.durable,
        deliver_policy=DeliverPolicy.ALL,
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=spec.ack_wait_s,
        max_deliver=spec.max_deliver,
        max_ack_pending=spec.max_ack_pending,
        filter_subjects=list(spec.filters),
    )


async def _stream(js: JetStreamContext, spec: StreamSpec) -> list[str]:
    """Create a stream or return its differences. A new one keeps all messages until its consumers exist."""
    wanted = stream_config(spec)
    try:
        found = (await js.stream_info(spec.name)).config
    except NotFoundError:
        await js.add_stream(wanted.evolve(retention=RetentionPolicy.LIMITS))
        log.info("stream.created", stream=spec.name)
        return []
    return stream_differences(spec, found)


def stream_differences(spec: StreamSpec, found: StreamConfig) -> list[str]:
    """Return the settings of a stream on the server that differ from its spec and are never changed."""
    names = _ALWAYS if spec.unread is not None else (*_ALWAYS, *_KEEPING)
    return _differences(f"stream {spec.name}", stream_config(spec), found, names)


async def _settle(js: JetStreamContext, spec: StreamSpec) -> None:
    """Resize a stream, and migrate an interest stream of an older release.

    Lowering `max_msgs_per_subject` below the present number drops the oldest messages. So the stream refuses new ones
    while they are counted.
    """
    wanted = stream_config(spec)
    found = await js.stream_info(spec.name)
    if spec.unread is not None and not 0 < found.config.max_msgs_per_subject <= spec.unread:
        await js.update_stream(
            found.config.evolve(
                retention=wanted.retention,
                discard=DiscardPolicy.NEW,
                discard_new_per_subject=False,
                max_bytes=_CLOSED_BYTES,
            )
        )
        found = await js.stream_info(spec.name, subjects_filter=">")
        most = max((found.state.subjects or {}).values(), default=0)
        wanted = wanted.evolve(max_msgs_per_subject=max(spec.unread, most))
    wanted = wanted.evolve(max_bytes=max(spec.max_bytes, found.state.bytes))
    names = _INTEREST if spec.unread is not None else _STORAGE
    changes = {name: getattr(wanted, name) for name in names if _differs(wanted, found.config, name)}
    if changes:
        await js.update_stream(found.config.evolve(**changes))
        log.info("stream.updated", stream=spec.name, changed=sorted(changes))


async def _consumer(js: JetStreamContext, spec: ConsumerSpec) -> list[str]:
    wanted = consumer_config(spec)
    try:
        found = (await js.consumer_info(spec.stream, spec.durable)).config
    except NotFoundError:
        await js.add_consumer(spec.stream, wanted)
        log.info("consumer.created", stream=spec.stream, consumer=spec.durable)
        return []
    if found.filter_subject and not found.filter_subjects:
        found.filter_subjects = [found.filter_subject]
    if set(found.filter_subjects or ()) < set(wanted.filter_subjects or ()):
        # A later release consumes more subjects; the consumer keeps its position.
        widened = replace(found, filter_subject=None, filter_subjects=wanted.filter_subjects)
        await js.add_consumer(spec.stream, widened)
        found = (await js.consumer_info(spec.stream, spec.durable)).config
        log.info("consumer.widened", stream=spec.stream, consumer=spec.durable)
    return _differences(
        f"consumer {spec.stream}/{spec.durable}",
        wanted,
        found,
        (
            "deliver_policy",
            "ack_policy",
            "ack_wait",
            "max_deliver",
            "max_ack_pending",
            "filter_subjects",
            "deliver_subject",
        ),
    )


def _differences(what: str, wanted: object, found: object, names: tuple[str, ...]) -> list[str]:
    differences = []
    for name in names:
        if _differs(wanted, found, name):
            differences.append(f"{what}: {name} is {getattr(found, name)}, expected {getattr(wanted, name)}")
    return differences


def _differs(wanted: object, found: object, name: str) -> bool:
    """Whether a setting differs; the server omits zero values and reorders lists."""
    want, have = getattr(wanted, name), getattr(found, name)
    if isinstance(want, list):
        return len(want) != len(have or ()) or any(each not in have for each in want)
    return bool(want != have) and bool(want or have)


async def run(settings: ProvisionSettings) -> None:
    """Wait for the server and provision it. Raises `RefusedByServer`, `NoAnswer` and `Drift`."""
    client = await first_connection(
        lambda: connect_once(settings, settings.login()),
        UNREACHABLE,
        lambda error: unreachable(settings, error),
        lambda error: may_answer_later(settings, error),
        refused_s=_RELOAD_S,
    )
    await provision_by(client, streams_bytes=settings.streams_bytes)


def main() -> None:
    """Provision the server that the environment variables name."""
    try:
        asyncio.run(run(ProvisionSettings()))
    except (RefusedByServer, NoAnswer, Drift) as error:
        end_job(error)


if __name__ == "__main__":
    main()

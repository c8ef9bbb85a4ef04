"""Make the running server match the spec, or say loudly how it differs."""

import asyncio
import ssl
from collections.abc import Sequence
from dataclasses import replace

import nats
import structlog
from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    DiscardPolicy,
    RePublish,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from nats.js.errors import NotFoundError

from counterpoint.bus.settings import BusSettings
from counterpoint.bus.streams import DUPLICATE_WINDOW_S, ConsumerSpec, StreamSpec, consumer_specs, stream_specs
from counterpoint.guard.policy import policy
from counterpoint.proto import subjects
from counterpoint.proto.errors import CounterpointError
from counterpoint.proto.messages import MESSAGE_LIMIT_BYTES

log = structlog.get_logger()


class Drift(CounterpointError):
    """The server has a stream or consumer that is not as specified; nothing was changed."""


async def provision(
    url: str,
    user: str,
    password: str,
    consumers: Sequence[ConsumerSpec] | None = None,
    tls: ssl.SSLContext | None = None,
) -> None:
    """Create what is missing; `consumers` are those of the policy unless given.

    Raises `Drift` naming every setting in which the server differs from the spec.
    """
    inbox_prefix = subjects.inbox_prefix(user).encode()
    client = await nats.connect(
        url, user=user, password=password, inbox_prefix=inbox_prefix, connect_timeout=5, tls=tls
    )
    try:
        js = client.jetstream(timeout=10)
        differences: list[str] = []
        for stream in stream_specs():
            differences += await _stream(js, stream)
        for consumer in consumer_specs(policy()) if consumers is None else consumers:
            differences += await _consumer(js, consumer)
        if differences:
            raise Drift("; ".join(differences))
    finally:
        await client.close()


def stream_config(spec: StreamSpec) -> StreamConfig:
    """A stream's configuration as the server knows it."""
    return StreamConfig(
        name=spec.name,
        subjects=list(spec.subjects),
        retention=RetentionPolicy.LIMITS,
        max_age=spec.max_age_s,
        max_bytes=spec.max_bytes,
        max_msg_size=MESSAGE_LIMIT_BYTES * 2,
        discard=DiscardPolicy.OLD,
        storage=StorageType.FILE,
        duplicate_window=DUPLICATE_WINDOW_S,
        num_replicas=1,
        deny_delete=spec.sealed,
        deny_purge=spec.sealed,
        republish=RePublish(src=">", dest=subjects.live(">")) if spec.live else None,
    )


def consumer_config(spec: ConsumerSpec) -> ConsumerConfig:
    """A consumer's configuration as the server knows it."""
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
    wanted = stream_config(spec)
    try:
        found = (await js.stream_info(spec.name)).config
    except NotFoundError:
        await js.add_stream(wanted)
        log.info("stream.created", stream=spec.name)
        return []
    return _differences(
        f"stream {spec.name}",
        wanted,
        found,
        (
            "subjects",
            "retention",
            "max_age",
            "max_bytes",
            "max_msg_size",
            "discard",
            "storage",
            "duplicate_window",
            "num_replicas",
            "deny_delete",
            "deny_purge",
            "republish",
        ),
    )


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
        # A later release consumes more; where nothing else differs the consumer goes on from where it was.
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
        want, have = getattr(wanted, name), getattr(found, name)
        if isinstance(want, list):
            want, have = sorted(want), sorted(have or [])
        if want != have:
            differences.append(f"{what}: {name} is {have}, wanted {want}")
    return differences


def main() -> None:
    """Provision the server that the environment names."""
    settings = BusSettings()
    password = settings.nats_password.get_secret_value()
    asyncio.run(provision(settings.nats_url, settings.nats_user, password, tls=settings.tls()))


if __name__ == "__main__":
    main()

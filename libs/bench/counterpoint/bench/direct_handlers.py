"""Limit of the flow benchmark: the handlers of the stub services publish the same messages directly, without memory.

`python -m counterpoint.bench.direct_handlers faststream|raw SERVICE NATS_URL` runs one such service. The only user of
the NATS server is `all`.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import nats
from faststream import AckPolicy
from faststream.nats import JStream, NatsBroker, NatsMessage, PullSub

from counterpoint import bus
from counterpoint.bench.stub_services import completed, decision_of, delegated, routed, worked
from counterpoint.bus.streams import consumer_specs
from counterpoint.guard.policy import policy
from counterpoint.proto import subjects
from counterpoint.proto.ids import derived_id
from counterpoint.proto.messages import Message, utc_now
from counterpoint.proto.tasks import SubmitTask, TaskDelegated, TaskRouted, TaskWorked

USER, PASSWORD = "all", "all"
PROJECT = "bench"
WORKERS = 50

Publish = Callable[[str, bytes, dict[str, str]], Awaitable[Any]]


def replies(message_type: str, body: dict[str, Any]) -> tuple[Message, ...]:
    """Return the messages that the stub services send in reply to a message."""
    match message_type:
        case SubmitTask.TYPE:
            task = SubmitTask.model_validate(body)
            assert task.task_id is not None
            return (routed(task.task_id, PROJECT, task, utc_now()),)
        case TaskRouted.TYPE:
            begun = TaskRouted.model_validate(body)
            return delegated(begun), decision_of(begun)
        case TaskDelegated.TYPE:
            work = TaskDelegated.model_validate(body)
            return (worked(work, work.task_id),)
        case TaskWorked.TYPE:
            return (completed(TaskWorked.model_validate(body)),)
        case _:
            return ()


async def handle(headers: dict[str, str], data: bytes, publish: Publish) -> None:
    """Publish the replies to a message, one after the other, each once the stream has stored it."""
    message_type = headers.get("ce-type", SubmitTask.TYPE)
    body = json.loads(data)
    for index, reply in enumerate(replies(message_type, body)):
        reply_headers = {
            "Nats-Msg-Id": derived_id(body["task_id"], message_type, index),
            "ce-type": reply.TYPE,
            "ce-correlationid": body["task_id"],
        }
        subject = subjects.of(reply.TYPE, PROJECT, agent="manager")
        await publish(subject, reply.model_dump_json(exclude_none=True).encode(), reply_headers)


def dispatcher(publish: Publish) -> Callable[[Any], Awaitable[None]]:
    """Return a callback that starts a message once one of `WORKERS` slots is free; it is acknowledged when handled."""
    slots = asyncio.Semaphore(WORKERS)
    running: set[asyncio.Task[None]] = set()

    async def one(message: Any) -> None:
        try:
            await handle(message.headers or {}, message.data, publish)
            await message.ack_sync()
        finally:
            slots.release()

    async def start(message: Any) -> None:
        await slots.acquire()
        task = asyncio.create_task(one(message))
        running.add(task)
        task.add_done_callback(running.discard)

    return start


async def serve_with_faststream(service: str, url: str) -> None:
    """Run a service on FastStream until it is killed."""
    broker = NatsBroker(
        url.replace("//", f"//{USER}:{PASSWORD}@"), inbox_prefix=b"_INBOX_all", apply_types=False, logger=None
    )

    async def undecoded(message: NatsMessage) -> NatsMessage:
        return message

    async def publish(subject: str, data: bytes, headers: dict[str, str]) -> None:
        await broker.publish(data, subject, headers=headers, stream=subjects.stream_of(subject))

    start = dispatcher(publish)

    async def consume(message: NatsMessage) -> None:
        """Start the message and return, as `counterpoint.bus` does: FastStream would await one message at a time."""
        await start(message.raw_message)

    for spec in consumer_specs(policy()):
        if spec.durable == service:
            broker.subscriber(
                spec.filters[0],
                durable=spec.durable,
                stream=JStream(spec.stream, declare=False),
                pull_sub=PullSub(batch_size=WORKERS, timeout=5.0),
                inbox_prefix=b"_INBOX_all.",
                ack_policy=AckPolicy.MANUAL,
                decoder=undecoded,
            )(consume)
    await broker.start()
    await asyncio.Event().wait()


async def serve_with_nats(service: str, url: str) -> None:
    """Run a service on nats-py alone until it is killed."""
    client = await nats.connect(url, user=USER, password=PASSWORD)
    js = client.jetstream()

    async def publish(subject: str, data: bytes, headers: dict[str, str]) -> None:
        await js.publish(subject, data, headers=headers)

    start = dispatcher(publish)

    async def pull(stream: str) -> None:
        subscription = await js.pull_subscribe_bind(service, stream)
        while True:
            try:
                messages = await subscription.fetch(WORKERS, timeout=5)
            except TimeoutError:
                continue
            for message in messages:
                await start(message)

    async with asyncio.TaskGroup() as group:
        for spec in consumer_specs(policy()):
            if spec.durable == service:
                group.create_task(pull(spec.stream))


if __name__ == "__main__":
    kind, name, where = sys.argv[1:]
    bus.run(serve_with_faststream(name, where) if kind == "faststream" else serve_with_nats(name, where))

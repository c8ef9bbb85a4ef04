"""The limit: the toys' handlers, publishing the same messages directly. No memory, no record, no rule.

`direct.py faststream|raw SERVICE NATS_URL` is one such service; the server's only user is `all`.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import nats
from faststream import AckPolicy
from faststream.nats import JStream, NatsBroker, NatsMessage, PullSub

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
from chaos.toys import completed, decision_of, delegated, routed, worked

from counterpoint import bus
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


def answers(message_type: str, body: dict[str, Any]) -> tuple[Message, ...]:
    """What follows from a message, as the toys would have it."""
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
    """One message: its answers, each stored before the next."""
    message_type = headers.get("ce-type", SubmitTask.TYPE)
    body = json.loads(data)
    for index, answer in enumerate(answers(message_type, body)):
        made = {
            "Nats-Msg-Id": derived_id(body["task_id"], message_type, index),
            "ce-type": answer.TYPE,
            "ce-correlationid": body["task_id"],
        }
        subject = subjects.of(answer.TYPE, PROJECT, agent="manager")
        await publish(subject, answer.model_dump_json(exclude_none=True).encode(), made)


def hands(publish: Publish) -> Callable[[Any], Awaitable[None]]:
    """What takes a message as soon as there is a place for it, and handles and acknowledges it there."""
    places = asyncio.Semaphore(WORKERS)
    under_way: set[asyncio.Task[None]] = set()

    async def one(message: Any) -> None:
        try:
            await handle(message.headers or {}, message.data, publish)
            await message.ack_sync()
        finally:
            places.release()

    async def take(message: Any) -> None:
        await places.acquire()
        task = asyncio.create_task(one(message))
        under_way.add(task)
        task.add_done_callback(under_way.discard)

    return take


async def by_faststream(service: str, url: str) -> None:
    """The service on FastStream, until it is ended."""
    broker = NatsBroker(
        url.replace("//", f"//{USER}:{PASSWORD}@"), inbox_prefix=b"_INBOX_all", apply_types=False, logger=None
    )

    async def whole(message: NatsMessage) -> NatsMessage:
        return message

    async def publish(subject: str, data: bytes, headers: dict[str, str]) -> None:
        await broker.publish(data, subject, headers=headers, stream=subjects.stream_of(subject))

    take = hands(publish)

    async def consume(message: NatsMessage) -> None:
        """As the house does it: FastStream's own workers would hand the next one over only after the last."""
        await take(message.raw_message)

    for spec in consumer_specs(policy()):
        if spec.durable == service:
            broker.subscriber(
                spec.filters[0],
                durable=spec.durable,
                stream=JStream(spec.stream, declare=False),
                pull_sub=PullSub(batch_size=WORKERS, timeout=5.0),
                inbox_prefix=b"_INBOX_all.",
                ack_policy=AckPolicy.MANUAL,
                decoder=whole,
            )(consume)
    await broker.start()
    await asyncio.Event().wait()


async def by_nats(service: str, url: str) -> None:
    """The service on nats-py alone, until it is ended."""
    client = await nats.connect(url, user=USER, password=PASSWORD)
    js = client.jetstream()

    async def publish(subject: str, data: bytes, headers: dict[str, str]) -> None:
        await js.publish(subject, data, headers=headers)

    take = hands(publish)

    async def pull(stream: str) -> None:
        subscription = await js.pull_subscribe_bind(service, stream)
        while True:
            try:
                messages = await subscription.fetch(WORKERS, timeout=5)
            except TimeoutError:
                continue
            for message in messages:
                await take(message)

    async with asyncio.TaskGroup() as group:
        for spec in consumer_specs(policy()):
            if spec.durable == service:
                group.create_task(pull(spec.stream))


if __name__ == "__main__":
    kind, name, where = sys.argv[1:]
    bus.run(by_faststream(name, where) if kind == "faststream" else by_nats(name, where))

"""Replay of deliveries: a handler runs again on the recorded answers, and nothing that it does has an effect.

A service replays its own deliveries in a process that reads a `RecordedDelivery` a line and writes a `Replayed` a line.
The process has no connection to the bus, to memory or to a model.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from counterpoint.client.memory import Memory
from counterpoint.proto import subjects
from counterpoint.proto.errors import CounterpointError
from counterpoint.proto.memory import (
    Commit,
    CommitReply,
    CommitRequest,
    Origin,
    QueryReply,
    QueryRequest,
    QueryResult,
    RecordedMessage,
    query_digest,
    salted,
)
from counterpoint.proto.messages import Message, Shape, Time

Handler = Callable[[Any, Memory], Awaitable[Commit]]


class GivenAnswer(Shape):
    """An answer that a delivery was given, and the salted hash of its query."""

    query: str
    result: QueryResult


class RecordedDelivery(Shape):
    """A delivery to run again: its inbound message, its time, and the answers to each of its requests."""

    service: str
    message_id: str
    fence: int
    project: str
    task_id: str | None
    now: Time
    inbound: RecordedMessage
    salt: str
    requests: tuple[tuple[GivenAnswer, ...], ...]


class Replayed(Shape):
    """The commits of a delivery that ran again. `stopped`: the reason why it could not run to its end; `invalid`: the
    reason why the policy cannot be used."""

    commits: tuple[Commit, ...] = ()
    stopped: str | None = None
    invalid: str | None = None


class ReplayStopped(CounterpointError):
    """The handler does something that the record has no answer to."""


class RecordedAnswers:
    """A transport that answers from a record. It keeps the commits, and refuses everything else."""

    def __init__(self, delivery: RecordedDelivery) -> None:
        self._delivery = delivery
        self._next = 0
        self.commits: list[Commit] = []

    async def __call__(self, subject: str, body: bytes, timeout_s: float) -> bytes:
        """Answer a query as it was answered, or keep a commit. Raises `ReplayStopped`."""
        caller = self._delivery.service
        if subject == subjects.query(caller):
            return self._answer(QueryRequest.model_validate_json(body)).model_dump_json().encode()
        if subject == subjects.commit(caller):
            self.commits.append(CommitRequest.model_validate_json(body).commit)
            return CommitReply(status="done").model_dump_json().encode()
        raise ReplayStopped("asks for something else than a query or a commit")

    def _answer(self, request: QueryRequest) -> QueryReply:
        if not request.queries or self._next >= len(self._delivery.requests):
            raise ReplayStopped(f"asks for more than was read: {_short(request)}")
        given = self._delivery.requests[self._next]
        self._next += 1
        salt = bytes.fromhex(self._delivery.salt)
        asked = [salted(query_digest(query), salt) for query in request.queries]
        if asked != [answer.query for answer in given]:
            raise ReplayStopped(f"asks for something else in request {self._next}: {_short(request)}")
        return QueryReply(found=tuple(answer.result for answer in given))


async def replayed(delivery: RecordedDelivery, handlers: Mapping[str, Handler]) -> Replayed:
    """Run the handler of a delivery again."""
    answers = RecordedAnswers(delivery)
    origin = Origin(
        message_id=delivery.message_id, fence=delivery.fence, project=delivery.project, task_id=delivery.task_id
    )
    memory = Memory(answers, delivery.service, origin, delivery.now)
    handler, message_type = handlers.get(delivery.inbound.type), Message.register.get(delivery.inbound.type)
    if handler is None or message_type is None:
        return Replayed(stopped=f"{delivery.service} does not handle {delivery.inbound.type}")
    try:
        commit = await handler(message_type.model_validate(delivery.inbound.data), memory)
    except (CounterpointError, ValidationError) as error:
        return Replayed(commits=tuple(answers.commits), stopped=f"{error}")
    last = () if memory.finished else (commit,)
    return Replayed(commits=(*answers.commits, *last))


def replay_lines(handlers_of: Callable[[Mapping[str, Any]], Mapping[str, Handler]]) -> None:
    """Replay the deliveries on standard input, under the policy in the file of the first argument, if any.

    Logs go to standard error.
    """
    policy, replies = sys.argv[1:], sys.stdout
    handlers, invalid = dict[str, Handler](), None
    try:
        handlers |= handlers_of(json.loads(Path(policy[0]).read_text()) if policy else {})
    except (TypeError, ValueError) as error:
        invalid = Replayed(invalid=str(error))

    async def run() -> None:
        for line in sys.stdin:
            result = invalid or await replayed(RecordedDelivery.model_validate_json(line), handlers)
            replies.write(result.model_dump_json(exclude_none=True) + "\n")
            replies.flush()

    with redirect_stdout(sys.stderr):
        asyncio.run(run())


def _short(request: QueryRequest) -> str:
    queries = (query.model_dump_json(exclude_defaults=True) for query in request.queries)
    return ", ".join(queries)[:2000]

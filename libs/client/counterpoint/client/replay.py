"""Replay of deliveries: a handler runs again on the recorded answers, and nothing that it does has an effect.

A service replays its own deliveries in a process that reads a `RecordedDelivery` a line and writes a `ReplayedDelivery`
a line. The process has no connection to the bus, to memory or to a model. For a replay with another model it asks the
process that started it: a line with a `LiveRequest` is answered by a line with a `LiveReply`.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from counterpoint.client.gateway import Completion, Gateway, Holder, Prompt, Usage, WebResults
from counterpoint.client.memory import Memory
from counterpoint.proto import subjects
from counterpoint.proto.errors import CounterpointError
from counterpoint.proto.memory import (
    Commit,
    CommitReply,
    CommitRequest,
    MemoryQuery,
    Origin,
    QueryReply,
    QueryRequest,
    QueryResult,
    RecordedMessage,
    query_digest,
    salted,
)
from counterpoint.proto.messages import Message, Shape, Time
from counterpoint.proto.replays import TextCall

CALL_S = 45.0
"""Maximum time of a call of a model, in seconds."""
Handler = Callable[[Any, Memory], Awaitable[Commit]]
HandlersOf = Callable[[Mapping[str, Any], Gateway], Mapping[str, Handler]]
"""From a policy and a gateway to the handlers of a service by message type. Raises `TypeError` or `ValueError` for a
policy that is not valid."""


class GivenAnswer(Shape):
    """An answer that a delivery was given, and the salted hash of its query."""

    query: str
    result: QueryResult


class RecordedCall(Shape):
    """A call of a model or of the web through the gateway, as the ledger has it."""

    kind: str
    model: str
    response: dict[str, Any] | None = None


class RecordedDelivery(Shape):
    """A delivery to run again: its inbound message, its time, the answers to each of its requests, and its calls of the
    gateway by their keys. With `live` the calls of models are made again, by another one."""

    service: str
    message_id: str
    fence: int
    project: str
    task_id: str | None
    now: Time
    inbound: RecordedMessage
    salt: str
    requests: tuple[tuple[GivenAnswer, ...], ...]
    calls: dict[str, RecordedCall] = {}
    live: bool = False


class ReplayedDelivery(Shape):
    """The commits of a delivery that ran again.

    `stopped`: it does something that the record has no answer to. `missing`: the record lacks the reply of a call that
    was made. `invalid`: the reason why the policy cannot be used.
    """

    commits: tuple[Commit, ...] = ()
    stopped: str | None = None
    missing: str | None = None
    invalid: str | None = None


class ReplayStopped(CounterpointError):
    """The handler does something that the record has no answer to."""


class ReplyMissing(CounterpointError):
    """The record lacks the reply of a call."""


class LiveRequest(Shape):
    """A call of a model, or queries that the record has no answer to."""

    call: TextCall | None = None
    queries: tuple[MemoryQuery, ...] = ()


class LiveReply(Shape):
    """The completion or the answers, or the `error` that ends the replay of the delivery."""

    text: str = ""
    finish: str = "stop"
    found: tuple[QueryResult, ...] = ()
    error: str | None = None


class ReplayLine(Shape):
    """A line that a replaying process writes: a request, or the result of a delivery."""

    asks: LiveRequest | None = None
    result: ReplayedDelivery | None = None


Live = Callable[[LiveRequest], Awaitable[LiveReply]]
"""Answers the requests of a delivery. Raises `ReplyMissing` if a request cannot be answered."""


class RecordedGateway(Gateway):
    """A gateway that returns the recorded replies, or raises `ReplyMissing`. It has a model or the web if the delivery
    called one."""

    def __init__(self, calls: Mapping[str, RecordedCall]) -> None:
        models = [call.model for call in calls.values() if call.kind == "generate"]
        searches_web = any(call.kind == "search" for call in calls.values())
        super().__init__("recorded", model=models[0] if models else None, searches_web=searches_web)
        self._calls = calls

    async def _complete(self, holder: Holder, prompt: Prompt, key: str, deadline_s: float) -> Completion:
        call, response = self._reply(key)
        return Completion(
            text=response["text"], finish=response["finish"], usage=Usage(model=call.model, input_tokens=0)
        )

    async def search_web(
        self, holder: Holder, query: str, *, key: str, deadline_s: float, count: int = 5
    ) -> WebResults:
        """Return the recorded pages. Raises `ReplyMissing`."""
        call, response = self._reply(key)
        return WebResults(results=response["results"], engine=call.model)

    def among(self, chosen: Callable[[str], bool]) -> "RecordedGateway":
        """Return the gateway with the calls whose keys are chosen."""
        return RecordedGateway({key: call for key, call in self._calls.items() if chosen(key)})

    def _reply(self, key: str) -> tuple[RecordedCall, Mapping[str, Any]]:
        call = self._calls.get(key)
        if call is None or call.response is None:
            raise ReplyMissing(f"the record has no reply of the call {key}")
        return call, call.response


class LiveGateway(RecordedGateway):
    """A gateway whose texts another model writes, in the name of the recorded one, so that the same text makes the same
    step. A web search has the recorded pages."""

    def __init__(self, calls: Mapping[str, RecordedCall], live: Live) -> None:
        super().__init__(calls)
        self._live = live

    async def _complete(self, holder: Holder, prompt: Prompt, key: str, deadline_s: float) -> Completion:
        call = TextCall.model_validate({"key": key, **prompt.model_dump(), "deadline_s": min(deadline_s, CALL_S)})
        reply = await self._live(LiveRequest(call=call))
        model = self._calls[key].model if key in self._calls else str(self.model)
        return Completion(text=reply.text, finish=reply.finish, usage=Usage(model=model, input_tokens=0))

    def among(self, chosen: Callable[[str], bool]) -> "LiveGateway":
        """Return the gateway with the calls whose keys are chosen."""
        return LiveGateway({key: call for key, call in self._calls.items() if chosen(key)}, self._live)


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
            return (await self._answer(QueryRequest.model_validate_json(body))).model_dump_json().encode()
        if subject == subjects.commit(caller):
            self.commits.append(CommitRequest.model_validate_json(body).commit)
            return CommitReply(status="done").model_dump_json().encode()
        raise ReplayStopped("asks for something else than a query or a commit")

    async def _answer(self, request: QueryRequest) -> QueryReply:
        while self._next < len(self._delivery.requests) and not self._delivery.requests[self._next]:
            self._next += 1  # A token for the web counts as a request.
        if not request.queries or self._next >= len(self._delivery.requests):
            raise ReplayStopped(f"asks for more than was read: {_short(request)}")
        given = self._delivery.requests[self._next]
        self._next += 1
        salt = bytes.fromhex(self._delivery.salt)
        digests = [salted(query_digest(query), salt) for query in request.queries]
        if digests != [answer.query for answer in given]:
            raise ReplayStopped(f"asks for something else in request {self._next}: {_short(request)}")
        return QueryReply(found=tuple(answer.result for answer in given))


class LiveAnswers(RecordedAnswers):
    """A transport that answers from a record in any order, and asks for what the record has no answer to."""

    def __init__(self, delivery: RecordedDelivery, live: Live) -> None:
        super().__init__(delivery)
        self._live = live
        self._given: dict[str, list[QueryResult]] = {}
        for answer in (each for request in delivery.requests for each in request):
            self._given.setdefault(answer.query, []).append(answer.result)

    async def _answer(self, request: QueryRequest) -> QueryReply:
        salt = bytes.fromhex(self._delivery.salt)
        names = [salted(query_digest(query), salt) for query in request.queries]
        new = {name: query for name, query in zip(names, request.queries, strict=True) if name not in self._given}
        if new:
            reply = await self._live(LiveRequest(queries=tuple(new.values())))
            self._given |= {name: [found] for name, found in zip(new, reply.found, strict=True)}
        return QueryReply(found=tuple(self._next_of(self._given[name]) for name in names))

    def _next_of(self, answers: list[QueryResult]) -> QueryResult:
        """Return the answers to a repeated query one after another, the last as often as it is asked."""
        return answers.pop(0) if len(answers) > 1 else answers[0]


async def replayed(
    delivery: RecordedDelivery, handlers_of: HandlersOf, policy: Mapping[str, Any], live: Live | None = None
) -> ReplayedDelivery:
    """Run the handler of a delivery again, under a policy; a `live` one asks for its calls of a model."""
    asks = live if delivery.live else None
    gateway = LiveGateway(delivery.calls, asks) if asks else RecordedGateway(delivery.calls)
    try:
        handlers = handlers_of(policy, gateway)
    except (TypeError, ValueError) as error:
        return ReplayedDelivery(invalid=str(error))
    answers = LiveAnswers(delivery, asks) if asks else RecordedAnswers(delivery)
    origin = Origin(
        message_id=delivery.message_id, fence=delivery.fence, project=delivery.project, task_id=delivery.task_id
    )
    memory = Memory(answers, delivery.service, origin, delivery.now)
    handler, message_type = handlers.get(delivery.inbound.type), Message.register.get(delivery.inbound.type)
    if handler is None or message_type is None:
        return ReplayedDelivery(stopped=f"{delivery.service} does not handle {delivery.inbound.type}")
    try:
        commit = await handler(message_type.model_validate(delivery.inbound.data), memory)
    except ReplyMissing as error:
        return ReplayedDelivery(commits=tuple(answers.commits), missing=f"{error}")
    except (CounterpointError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # With an item left out, a handler may fail on what it was never given.
        return ReplayedDelivery(commits=tuple(answers.commits), stopped=f"{error}" or type(error).__name__)
    last = () if memory.finished else (commit,)
    return ReplayedDelivery(commits=(*answers.commits, *last))


def replay_lines(handlers_of: HandlersOf) -> None:
    """Replay the deliveries on standard input, under the policy in the file of the first argument, if any.

    Logs go to standard error.
    """
    replies = sys.stdout
    policy = json.loads(Path(sys.argv[1]).read_text()) if len(sys.argv) > 1 else {}
    one_at_a_time = asyncio.Lock()

    def write(line: ReplayLine) -> None:
        replies.write(line.model_dump_json(exclude_none=True) + "\n")
        replies.flush()

    async def ask(request: LiveRequest) -> LiveReply:
        async with one_at_a_time:
            write(ReplayLine(asks=request))
            reply = LiveReply.model_validate_json(await asyncio.to_thread(sys.stdin.readline))
        if reply.error is not None:
            raise ReplyMissing(reply.error)
        return reply

    async def run() -> None:
        for line in iter(sys.stdin.readline, ""):
            result = await replayed(RecordedDelivery.model_validate_json(line), handlers_of, policy, ask)
            write(ReplayLine(result=result))

    with redirect_stdout(sys.stderr):
        asyncio.run(run())


def _short(request: QueryRequest) -> str:
    queries = (query.model_dump_json(exclude_defaults=True) for query in request.queries)
    return ", ".join(queries)[:2000]

"""The world outside as the gateway meets it: a provider of models in OpenAI's words and a SearXNG, both over real HTTP;
and a gateway on memory's real door."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
from memory_service.house import DELEGATED, House, task_body
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from counterpoint.bus.health import HttpServer, http_server, serve
from counterpoint.client import Gateway, Memory
from counterpoint.manager.gateway.api import application
from counterpoint.manager.gateway.gateway import ModelGateway
from counterpoint.manager.gateway.provider_limits import ProviderLimits
from counterpoint.proto.memory import GatewayToken, Origin, Outgoing, QueryReply, QueryRequest, TokenPurpose, Write
from counterpoint.proto.messages import utc_now

PRICED, UNPRICED = "openai/gpt-4o-mini", "openai/nobody-knows"
EMBEDDING = "openai/text-embedding-3-small"


class World:
    """A scripted provider and search engine. `seen` has the requests, `answers` the next responses, after which the
    model says `text`, or what its `script` makes of the messages. Responses wait for `hold`, and each part of a stream
    after the first for `between`.

    `arrived` is set when `expected` requests have come in. `connections` has the ports of the clients of models.
    """

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.answers: list[Response] = []
        self.connections: set[int] = set()
        self.hold = asyncio.Event()
        self.hold.set()
        self.arrived = asyncio.Event()
        self.expected = 1
        self.text = "It was the disk."
        self.script: Callable[[Any], str] | None = None
        self.tool_calls: list[dict[str, Any]] = []
        self.cut: int | None = None
        self.between = asyncio.Event()
        self.between.set()
        self.output_tokens = 5
        self.pages: list[dict[str, Any]] = []
        self.dimensions = 384
        self.counts_tokens = True
        self.url = ""

    async def chat(self, request: Request) -> Response:
        body = await self._came(request)
        if self.answers:
            return self.answers.pop(0)
        if body.get("stream"):
            return StreamingResponse(self._stream(body), media_type="text/event-stream")
        text = self.text if self.script is None else self.script(body["messages"])
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if self.tool_calls:
            message |= {"content": None, "tool_calls": self.tool_calls}
        usage = {"prompt_tokens": 20, "completion_tokens": self.output_tokens, "total_tokens": 20 + self.output_tokens}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if self.tool_calls else "stop"}
        return JSONResponse(
            {"id": "1", "object": "chat.completion", "created": 1, "model": body["model"], "choices": [choice],
             "usage": usage}
        )  # fmt: skip

    async def _stream(self, body: dict[str, Any]) -> AsyncIterator[str]:
        """One event for each word, or for half of the arguments of each tool call; `cut` ends it after as many."""
        deltas: list[dict[str, Any]] = [{"content": word} for word in self.text.split(" ")]
        if self.tool_calls:
            deltas = []
            for index, call in enumerate(self.tool_calls):
                arguments = call["function"]["arguments"]
                half = len(arguments) // 2
                begun = call | {"function": call["function"] | {"arguments": arguments[:half]}}
                deltas.append({"tool_calls": [{"index": index, **begun}]})
                deltas.append({"tool_calls": [{"index": index, "function": {"arguments": arguments[half:]}}]})
        head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
        for delta in deltas if self.cut is None else deltas[: self.cut]:
            yield event({**head, "choices": [{"index": 0, "delta": {"role": "assistant", **delta}}]})
            await self.between.wait()
        if self.cut is not None:
            return
        finish = "tool_calls" if self.tool_calls else "stop"
        yield event({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        if self.counts_tokens:
            assert body["stream_options"] == {"include_usage": True}
            tokens = {"prompt_tokens": 20, "completion_tokens": self.output_tokens}
            usage = tokens | {"total_tokens": sum(tokens.values())}
            yield event({**head, "choices": [], "usage": usage})
        yield "data: [DONE]\n\n"

    async def embeddings(self, request: Request) -> Response:
        body = await self._came(request)
        if self.answers:
            return self.answers.pop(0)
        texts = body["input"]
        data = [
            {"object": "embedding", "index": n, "embedding": vector_of(text, self.dimensions)}
            for n, text in enumerate(texts)
        ]
        tokens = sum(map(len, texts)) // 4 + 1 if self.counts_tokens else 0
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return JSONResponse({"object": "list", "data": data, "model": body["model"], "usage": usage})

    async def search(self, request: Request) -> Response:
        await self._seen(dict(request.query_params))
        return self.answers.pop(0) if self.answers else JSONResponse({"query": "q", "results": self.pages})

    async def _came(self, request: Request) -> dict[str, Any]:
        assert request.client is not None
        self.connections.add(request.client.port)
        body: dict[str, Any] = json.loads(await request.body())
        await self._seen(body)
        return body

    async def _seen(self, body: dict[str, Any]) -> None:
        self.seen.append(body)
        if len(self.seen) >= self.expected:
            self.arrived.set()
        await self.hold.wait()


def event(data: dict[str, Any]) -> str:
    """An event of a stream."""
    return f"data: {json.dumps(data)}\n\n"


def vector_of(text: str, dimensions: int) -> list[float]:
    """A vector that texts with the same words have in common, not of length 1."""
    vector = [0.01] * dimensions
    for word in text.lower().split():
        vector[sum(map(ord, word)) * 7919 % dimensions] += 3.0
    return vector


@asynccontextmanager
async def run_server(app: Starlette) -> AsyncIterator[str]:
    """A server of this process: its URL."""
    server: HttpServer
    server, port = http_server(app, "127.0.0.1", 0)
    serving = asyncio.create_task(serve(server))
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    """The world, listening."""
    made = World()
    routes = [
        Route("/v1/chat/completions", made.chat, methods=["POST"]),
        Route("/v1/embeddings", made.embeddings, methods=["POST"]),
        Route("/search", made.search),
    ]
    async with run_server(Starlette(routes=routes)) as url:
        made.url = url
        try:
            yield made
        finally:
            made.hold.set()
            made.between.set()


class Door:
    """Requests as they come over the bus. `before` may stand in the way of one, and `after` of its reply: they are told
    the subject and the body."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.before: Callable[[str, bytes], Any] | None = None
        self.after: Callable[[str, bytes], Any] | None = None

    async def __call__(self, subject: str, body: bytes, timeout_s: float) -> bytes:
        if self.before is not None:
            await self.before(subject, body)
        _, caller, operation, *_ = subject.split(".")
        execute = getattr(self.house.door, operation)
        reply = bytes(await execute(caller, body))
        if self.after is not None:
            await self.after(subject, body)
        return reply


def calls(door: Door, outside: ProviderLimits) -> ModelGateway:
    """The gateway of a manager process."""
    return ModelGateway(lambda origin: Memory(door, "manager", origin, utc_now()), outside)


@asynccontextmanager
async def gateway(door: Door, outside: ProviderLimits) -> AsyncIterator[tuple[str, ModelGateway]]:
    """A gateway, listening: its URL, and what is behind it."""
    made = calls(door, outside)
    await made.load()
    async with run_server(application(made)) as url:
        try:
            yield url, made
        finally:
            await made.close()


async def delegated(
    house: House, project: str, task: str, fields: Mapping[str, Any] | None = None, **budget: Any
) -> str:
    """A task with a budget and other fields, handed to the developer: the message's id."""
    routed = await house.routed(project, task)
    body = task_body(task, **(fields or {}), **({"budget": budget} if budget else {}))
    message = Outgoing(type=DELEGATED, data={"task_id": task})
    write = Write(store="tasks", id=task, body=body)
    done = await house.apply("manager", house.delivery(routed, lives_s=3600), writes=(write,), messages=(message,))
    return done.message_ids[0]


def developer(door: Door, message_id: str) -> Memory:
    """The developer's memory while it works on a message."""
    return Memory(door, "developer", door.house.delivery(message_id, lives_s=3600), utc_now())


async def token(
    house: House, origin: Origin, purpose: TokenPurpose = "model", reads: int = 0, **asked: Any
) -> QueryReply:
    """Return the reply of memory to a service that asks for a token."""
    request = QueryRequest(origin=origin, gateway=GatewayToken(purpose=purpose, reads=reads, **asked))
    return QueryReply.model_validate_json(await house.door.query("developer", request.model_dump_json().encode()))


async def posted(url: str, path: str, token: str, body: Any, **headers: str) -> httpx.Response:
    """A request as any client makes it."""
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        said = {"Authorization": f"Bearer {token}"} | {name.replace("_", "-"): each for name, each in headers.items()}
        return await client.post(f"{url}{path}", json=body, headers=said)


def client(url: str, model: str = PRICED, searches_web: bool = False) -> Gateway:
    """The gateway as services use it."""
    return Gateway(url, model=model, embedding_model=EMBEDDING, searches_web=searches_web)


def unit(packed: bytes) -> float:
    """The length of a vector."""
    return math.sqrt(sum(value * value for value in memoryview(packed).cast("f").tolist()))

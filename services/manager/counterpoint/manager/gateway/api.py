"""HTTP API of the gateway, compatible with OpenAI's API for text and embeddings."""

import base64
import json
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, Literal, TypeVar

from pydantic import Field, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from counterpoint.client.gateway import KEY_LIMIT_CHARS
from counterpoint.manager.gateway.calls import (
    CallOutcome,
    DeltaSink,
    EmbedCall,
    ProviderCall,
    WebSearchCall,
)
from counterpoint.manager.gateway.chat_request import ChatRequest
from counterpoint.manager.gateway.completion import message_of
from counterpoint.manager.gateway.gateway import ModelGateway
from counterpoint.manager.gateway.responses import completion_stream, error_body, usage_of
from counterpoint.manager.gateway.web import COUNT_LIMIT
from counterpoint.proto.errors import CounterpointError, Denied, ErrorCode, Permanent, Problem
from counterpoint.proto.ids import new_id
from counterpoint.proto.messages import Shape

S = TypeVar("S", bound=Shape)

BODY_LIMIT_BYTES = 4 * 1024 * 1024
UNCHECKED_BYTES = 64 * 1024
"""Size up to which a body is received before its token is checked."""
TEXTS_LIMIT = 2048
_WAIT = re.compile(r"\bwait=([0-9]+(?:\.[0-9]+)?)")
_UNTOKENED = frozenset(
    {
        ErrorCode.MALFORMED,
        ErrorCode.SIGNATURE,
        ErrorCode.EXPIRED,
        ErrorCode.REVOKED,
        ErrorCode.AUDIENCE,
        ErrorCode.ATTENUATED,
    }
)
_CONFLICTS = frozenset({ErrorCode.UNKNOWN_OUTCOME, ErrorCode.NOT_KEPT, ErrorCode.KEY_REUSED})
_MISSING = frozenset({ErrorCode.NO_MODEL, ErrorCode.WEB_UNAVAILABLE})


class _Embeddings(Shape):
    input: str | Annotated[tuple[str, ...], Field(min_length=1, max_length=TEXTS_LIMIT)]
    model: str | None = None
    dimensions: int | None = Field(default=None, ge=1, le=65_536)
    encoding_format: Literal["float", "base64"] = "float"


class _WebSearch(Shape):
    query: str = Field(min_length=1, max_length=2_000)
    count: int = Field(default=5, ge=1, le=COUNT_LIMIT)


def application(gateway: ModelGateway) -> Starlette:
    """`POST /v1/chat/completions`, `/v1/embeddings` and `/v1/search`, each with a gateway token as its bearer token.

    `Idempotency-Key` is the key of the call, `Prefer: wait=S` its deadline.
    """

    async def perform(request: Request, call: ProviderCall, deltas: DeltaSink | None = None) -> CallOutcome:
        return await gateway.call(_token(request), _key(request), call, _wait_s(request), deltas)

    async def received(request: Request, shape: type[S]) -> S:
        token = _token(request)
        return await _body(request, shape, partial(gateway.check_token, token))

    async def chat(request: Request) -> Response:
        body = await received(request, ChatRequest)
        max_tokens = gateway.max_output_tokens(body.max_completion_tokens or body.max_tokens)
        call = body.call(gateway.generation(body.model, _token(request)), max_tokens)
        if body.stream:
            with_usage = body.stream_options is not None and body.stream_options.include_usage
            return await completion_stream(partial(perform, request, call), with_usage=with_usage)
        outcome = await perform(request, call)
        choice = {"index": 0, "message": message_of(outcome.answer), "finish_reason": outcome.answer["finish"]}
        head = {"id": new_id(), "object": "chat.completion", "created": int(time.time())}
        return JSONResponse({**head, "choices": [choice], **usage_of(outcome)})

    async def embeddings(request: Request) -> Response:
        body = await received(request, _Embeddings)
        texts = (body.input,) if isinstance(body.input, str) else body.input
        outcome = await perform(request, EmbedCall(gateway.embedding(body.model), texts, body.dimensions))
        vectors = [_vector(each, body.encoding_format) for each in outcome.answer["vectors"]]
        data = [{"object": "embedding", "index": n, "embedding": each} for n, each in enumerate(vectors)]
        return JSONResponse({"object": "list", "data": data, **usage_of(outcome)})

    async def search(request: Request) -> Response:
        body = await received(request, _WebSearch)
        outcome = await perform(request, WebSearchCall(body.query, body.count))
        return JSONResponse(outcome.answer)

    return Starlette(
        routes=[
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/embeddings", embeddings, methods=["POST"]),
            Route("/v1/search", search, methods=["POST"]),
        ],
        exception_handlers={CounterpointError: _refused},
    )


async def _refused(_: Request, error: Exception) -> Response:
    body = error_body(error)
    match body["type"], body["code"]:
        case "denied", code:
            status = 401 if code in _UNTOKENED else 403
        case "permanent", code:
            status = 409 if code in _CONFLICTS else 404 if code in _MISSING else 422
        case _:
            status = 503
    return JSONResponse({"error": body}, status)


def _token(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise Denied(ErrorCode.MALFORMED, "a gateway token as the bearer token")
    return token.strip()


def _key(request: Request) -> str:
    key = request.headers.get("idempotency-key") or new_id()
    if len(key) > KEY_LIMIT_CHARS:
        problem = Problem(field="Idempotency-Key", problem=f"is longer than {KEY_LIMIT_CHARS} characters")
        raise Permanent(ErrorCode.INVALID, (problem,))
    return key


def _wait_s(request: Request) -> float | None:
    body = _WAIT.search(request.headers.get("prefer", ""))
    return float(body[1]) if body else None


async def _body(request: Request, shape: type[S], check_token: Callable[[], Awaitable[None]]) -> S:
    """Receive a body. Its token is checked before more than `UNCHECKED_BYTES` of it is held."""
    raw, checked = bytearray(), False
    async for piece in request.stream():
        raw += piece
        if len(raw) > UNCHECKED_BYTES and not checked:
            await check_token()
            checked = True
        if len(raw) > BODY_LIMIT_BYTES:
            raise Permanent(
                ErrorCode.TOO_LARGE, (Problem(field="body", problem=f"more than {BODY_LIMIT_BYTES} bytes"),)
            )
    try:
        return shape.model_validate(json.loads(raw))
    except ValidationError as error:
        problems = [Problem(field=".".join(map(str, each["loc"])), problem=each["msg"]) for each in error.errors()[:20]]
        raise Permanent(ErrorCode.INVALID, tuple(problems)) from error
    except (ValueError, RecursionError) as error:
        raise Permanent(ErrorCode.MALFORMED, (Problem(field="body", problem="is not valid JSON"),)) from error


def _vector(packed: bytes, encoding: str) -> str | Sequence[float]:
    return base64.b64encode(packed).decode() if encoding == "base64" else memoryview(packed).cast("f").tolist()

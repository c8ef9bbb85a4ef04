"""HTTP API of the gateway, compatible with OpenAI's API for text and embeddings."""

import base64
import json
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from counterpoint.client.gateway import KEY_LIMIT_CHARS
from counterpoint.manager.gateway.calls import CallOutcome, EmbedCall, GenerateCall, ProviderCall, WebSearchCall
from counterpoint.manager.gateway.gateway import ModelGateway
from counterpoint.manager.gateway.ledger import UNKNOWN
from counterpoint.manager.gateway.web import COUNT_LIMIT
from counterpoint.proto.errors import CounterpointError, Denied, ErrorCode, Permanent, Problem, Transient
from counterpoint.proto.ids import new_id
from counterpoint.proto.messages import Shape

S = TypeVar("S", bound=Shape)

BODY_LIMIT_BYTES = 4 * 1024 * 1024
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


class _Part(Shape):
    type: Literal["text"]
    text: str


class _ChatMessage(Shape):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | tuple[_Part, ...]

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "\n".join(part.text for part in self.content)


class _Format(Shape):
    type: Literal["text", "json_object"]


class _Chat(Shape):
    messages: Annotated[tuple[_ChatMessage, ...], Field(min_length=1, max_length=1000)]
    model: str | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    temperature: float = Field(default=0.0, ge=0, le=2)
    response_format: _Format | None = None
    stream: Literal[False] | None = None
    n: Literal[1] | None = None


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

    async def perform(request: Request, call: ProviderCall) -> CallOutcome:
        return await gateway.call(_token(request), _key(request), call, _wait_s(request))

    async def chat(request: Request) -> Response:
        body = await _body(request, _Chat)
        call = GenerateCall(
            model=gateway.generation(body.model),
            messages=tuple((each.role, each.text) for each in body.messages),
            max_tokens=gateway.max_output_tokens(body.max_completion_tokens or body.max_tokens),
            temperature=body.temperature,
            as_json=body.response_format is not None and body.response_format.type == "json_object",
        )
        outcome = await perform(request, call)
        message = {"role": "assistant", "content": outcome.answer["text"]}
        choice = {"index": 0, "message": message, "finish_reason": outcome.answer["finish"]}
        return JSONResponse({"id": new_id(), "object": "chat.completion", "choices": [choice], **_usage(outcome)})

    async def embeddings(request: Request) -> Response:
        body = await _body(request, _Embeddings)
        texts = (body.input,) if isinstance(body.input, str) else body.input
        outcome = await perform(request, EmbedCall(gateway.embedding(body.model), texts, body.dimensions))
        vectors = [_vector(each, body.encoding_format) for each in outcome.answer["vectors"]]
        data = [{"object": "embedding", "index": n, "embedding": each} for n, each in enumerate(vectors)]
        return JSONResponse({"object": "list", "data": data, **_usage(outcome)})

    async def search(request: Request) -> Response:
        body = await _body(request, _WebSearch)
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
    body: dict[str, Any]
    match error:
        case Denied(rule=rule, needed=needed):
            status, body = 401 if rule in _UNTOKENED else 403, {"type": "denied", "code": rule, "message": needed}
        case Permanent(code=code, problems=problems):
            status = 409 if code in _CONFLICTS else 404 if code in _MISSING else 422
            listed = [problem.model_dump() for problem in problems]
            body = {"type": "permanent", "code": code, "message": str(error), "problems": listed}
        case Transient(retry_after_s=retry_after_s):
            status = 503
            body = {"type": "transient", "code": "away", "message": str(error), "retry_after_s": retry_after_s}
        case _:
            status, body = 503, {"type": "transient", "code": "away", "message": str(error)}
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


async def _body(request: Request, shape: type[S]) -> S:
    raw = bytearray()
    async for piece in request.stream():
        raw += piece
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


def _usage(outcome: CallOutcome) -> dict[str, Any]:
    usage = outcome.usage
    cost = UNKNOWN if usage.usd == UNKNOWN else format(usage.usd, "f")
    return {
        "model": outcome.model,
        "usage": {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.tokens,
        },
        "counterpoint": {"cost_usd": cost, "replayed": outcome.replayed},
    }


def _vector(packed: bytes, encoding: str) -> str | Sequence[float]:
    return base64.b64encode(packed).decode() if encoding == "base64" else memoryview(packed).cast("f").tolist()

"""Client of the manager's gateway: completions, embeddings and web searches, each paid from the budget of its holder.

A key identifies a call within the processing of one message: a repeated key returns the stored outcome, and no second
call is made. A call of a service that is not configured raises `Permanent` `no_model` or `web_unavailable`; `model`,
`embedding_model` and `searches_web` tell beforehand.
"""

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import ValidationError

from counterpoint.proto.errors import CounterpointError, Denied, ErrorCode, Permanent, Problem, Transient
from counterpoint.proto.memory import TokenPurpose
from counterpoint.proto.messages import Shape, Usd

if TYPE_CHECKING:
    from httpx import AsyncClient

KEY_LIMIT_CHARS = 200
RELATIONS_JOB = "relations"
"""The job of memory whose budget pays for the extraction of relations from documents."""
_REPLY_RESERVE_S = 0.5
"""Time before the deadline that is reserved for the transfer of the reply."""


class Holder(Protocol):
    """Holder of a call: `counterpoint.client.Memory` of a delivery, or memory itself for a job of its own."""

    async def gateway_token(self, purpose: TokenPurpose) -> str:
        """Return a token for calls of this purpose. Raises like a query."""


class Usage(Shape):
    """Usage of a call. `cost_usd` is None if the price is unknown; `replayed`: the result of an earlier call was
    returned."""

    model: str
    input_tokens: int
    output_tokens: int = 0
    cost_usd: Usd | None = None
    replayed: bool = False


class Completion(Shape):
    """Completion of a model. `finish` is `stop`, or `length` if it was cut at the limit."""

    text: str
    finish: str
    usage: Usage


class Embeddings(Shape):
    """One vector per text, in their order, as little-endian float32."""

    vectors: tuple[bytes, ...]
    usage: Usage


class Prompt(Shape):
    """The messages of a completion (each `role` and `content`), and its options; `as_json` requests one JSON object."""

    messages: tuple[Mapping[str, str], ...]
    max_tokens: int
    temperature: float
    as_json: bool


class WebResult(Shape):
    """A page found by a web search. Its text is untrusted."""

    title: str
    url: str
    snippet: str


class WebResults(Shape):
    """The pages found, best first, perhaps none. `engine` is the search engine."""

    results: tuple[WebResult, ...]
    engine: str


class Gateway:
    """Calls through the gateway at `url`, one instance per process; `model` and `embedding_model` are those configured.

    Every deadline is in seconds, for the whole call.
    """

    def __init__(
        self,
        url: str | None,
        *,
        model: str | None = None,
        embedding_model: str | None = None,
        searches_web: bool = False,
    ) -> None:
        self._url = url
        self._client: AsyncClient | None = None
        self.model = model if url else None
        self.embedding_model = embedding_model if url else None
        self.searches_web = searches_web and url is not None

    async def generate(
        self,
        holder: Holder,
        messages: Sequence[Mapping[str, str]],
        *,
        key: str,
        deadline_s: float,
        max_tokens: int = 1024,
        temperature: float = 0.0,
        as_json: bool = False,
    ) -> Completion:
        """Return the completion of `messages` (each `role` and `content`); `as_json` requests one JSON object.

        Raises `Permanent` (`no_model`, `unknown_outcome`, `not_kept`, `key_reused`, `invalid`, `refused`),
        `Denied` (`budget`, `label`, `ended`, `expired` ...), or `Transient`.
        """
        prompt = Prompt(messages=tuple(messages), max_tokens=max_tokens, temperature=temperature, as_json=as_json)
        return await self._complete(holder, prompt, key, deadline_s)

    async def embed(
        self, holder: Holder, texts: Sequence[str], *, key: str, deadline_s: float, dimensions: int | None = None
    ) -> Embeddings:
        """Return the vectors of `texts`; `dimensions` is their length, if the model supports it. Raises like
        `generate`."""
        if self.embedding_model is None:
            raise _not_configured(ErrorCode.NO_MODEL, "COUNTERPOINT_EMBEDDING_MODEL")
        body: dict[str, Any] = {"model": self.embedding_model, "input": list(texts), "encoding_format": "base64"}
        if dimensions is not None:
            body["dimensions"] = dimensions
        reply = await self._post(holder, "model", "/v1/embeddings", body, key, deadline_s)
        vectors = [row["embedding"] for row in sorted(reply["data"], key=lambda row: int(row["index"]))]
        return Embeddings(vectors=tuple(base64.b64decode(vector) for vector in vectors), usage=_usage(reply))

    async def search_web(
        self, holder: Holder, query: str, *, key: str, deadline_s: float, count: int = 5
    ) -> WebResults:
        """Return pages about `query`. All later commits of the holder are untrusted. Raises like `generate`."""
        if not self.searches_web:
            raise _not_configured(ErrorCode.WEB_UNAVAILABLE, "COUNTERPOINT_SEARCH_URL")
        reply = await self._post(holder, "web", "/v1/search", {"query": query, "count": count}, key, deadline_s)
        return WebResults.model_validate(reply)

    async def _complete(self, holder: Holder, prompt: Prompt, key: str, deadline_s: float) -> Completion:
        if self.model is None:
            raise _not_configured(ErrorCode.NO_MODEL, "COUNTERPOINT_MODEL")
        body = {
            "model": self.model,
            **prompt.model_dump(exclude={"as_json"}),
            **({"response_format": {"type": "json_object"}} if prompt.as_json else {}),
        }
        reply = await self._post(holder, "model", "/v1/chat/completions", body, key, deadline_s)
        choice = reply["choices"][0]
        return Completion(
            text=choice["message"]["content"] or "", finish=choice["finish_reason"] or "stop", usage=_usage(reply)
        )

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    async def _post(
        self, holder: Holder, purpose: TokenPurpose, path: str, body: dict[str, Any], key: str, deadline_s: float
    ) -> dict[str, Any]:
        import httpx

        if self._client is None:
            self._client = httpx.AsyncClient(base_url=self._url or "", timeout=None, trust_env=False)
        try:
            async with asyncio.timeout(deadline_s):
                token = await holder.gateway_token(purpose)
                wait_s = max(deadline_s - _REPLY_RESERVE_S, deadline_s / 2)
                headers = {
                    "Authorization": f"Bearer {token}",
                    "Idempotency-Key": key,
                    "Prefer": f"wait={wait_s:.3f}",
                }
                answer = await self._client.post(path, json=body, headers=headers)
        except TimeoutError as late:
            raise Transient(f"the gateway did not respond within {deadline_s} s") from late
        except httpx.TransportError as error:
            raise Transient(f"the gateway is not reachable: {type(error).__name__}", retry_after_s=1.0) from error
        try:
            reply = answer.json()
        except json.JSONDecodeError as error:
            raise Transient(f"the gateway returned HTTP {answer.status_code} without valid JSON") from error
        if answer.status_code != httpx.codes.OK:
            raise error_from(reply)
        return dict(reply)


class GatewayError(Shape):
    """An error in the gateway's reply, where other clients expect it: `{"error": {...}}`."""

    type: Literal["transient", "permanent", "denied"]
    code: str
    message: str
    problems: tuple[Problem, ...] = ()
    retry_after_s: float | None = None


def error_from(reply: Any) -> CounterpointError:
    """Return the error in a reply of the gateway."""
    try:
        error = GatewayError.model_validate(reply["error"])
    except (ValidationError, KeyError, TypeError):
        return Transient("the gateway returned an error of an unknown form")
    match error.type:
        case "transient":
            return Transient(error.message, error.retry_after_s)
        case "denied":
            return Denied(error.code, error.message)
        case "permanent":
            return Permanent(error.code, error.problems or (Problem(field="call", problem=error.message),))


def _usage(reply: Mapping[str, Any]) -> Usage:
    usage, extra = reply["usage"], reply["counterpoint"]
    cost = extra["cost_usd"]
    return Usage(
        model=reply["model"],
        input_tokens=usage["prompt_tokens"],
        output_tokens=usage["total_tokens"] - usage["prompt_tokens"],
        cost_usd=None if cost == "unknown" else Decimal(cost),
        replayed=extra["replayed"],
    )


def _not_configured(code: str, setting: str) -> Permanent:
    return Permanent(code, (Problem(field=setting, problem="is not set; the gateway needs it"),))

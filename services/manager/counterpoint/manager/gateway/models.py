"""Calls of external models through LiteLLM, which is imported only when a model is configured.

Only its calls and its price table are used. Its callbacks lose events, its budgets do not stop parallel calls, and its
retries would hide calls that were paid twice.
"""

import array
import asyncio
import importlib
import json
import os
import random
import sys
from collections.abc import Awaitable, Iterator
from contextlib import aclosing
from typing import Any

import httpx
import structlog

from counterpoint.manager.gateway.calls import CallOutcome, DeltaSink, EmbedCall, GenerateCall, max_call_tokens
from counterpoint.manager.gateway.completion import StreamedCompletion, completion_of
from counterpoint.manager.gateway.ledger import UNKNOWN, CallUsage, dollars
from counterpoint.proto.errors import CounterpointError, ErrorCode, Permanent, Problem, Transient

log = structlog.get_logger()

_FIRST_WAIT_S = 0.2
_RETRYABLE = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""HTTP statuses that may be retried, since the provider did nothing."""
_PROMPT_ERRORS = frozenset({400, 413, 422, 451})
"""HTTP statuses about the prompt: too long, or refused."""

_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, ConnectionRefusedError)
_NO_REPLY = frozenset({"Timeout", "APITimeoutError", "APIConnectionError"})
"""Names of connection errors, which LiteLLM also reports with status 500."""
_INVALID = "Empty or invalid response from LLM endpoint"
"""The message of a response that is no completion, which LiteLLM reports with status 500 too."""


class ProviderUnavailable(Transient):
    """The provider is busy or not reachable, and has done nothing."""


class UnknownCallOutcome(CounterpointError):
    """The provider may have made the call, but its outcome is unknown."""


class ModelProvider:
    """Calls models, with at most `tries` tries of a call before its deadline, which is at most `call_s` away."""

    def __init__(self, tries: int, call_s: float) -> None:
        self._tries = tries
        # LiteLLM keeps a client, with its connections, for each timeout: the time that is left would make one a call.
        self._client_timeout_s = call_s
        self._loading = asyncio.Lock()
        self._litellm: Any = None
        self._is_internal: Any = None

    async def load(self) -> None:
        """Import LiteLLM in a thread, which takes seconds."""
        async with self._loading:
            if self._litellm is None:
                self._litellm, self._is_internal = await asyncio.to_thread(_import_litellm)

    async def close(self) -> None:
        """Close the connections."""
        if self._litellm is not None:
            await self._litellm.close_litellm_async_clients()
            self._litellm.in_memory_llm_clients_cache.flush_cache()

    async def estimate(self, model: str, input_tokens: int, output_tokens: int) -> CallUsage:
        """Estimate the cost of tokens; `unknown` where the model has no known price."""
        await self.load()
        return CallUsage(self._price(model, input_tokens, output_tokens), input_tokens, output_tokens)

    async def call(
        self, call: GenerateCall | EmbedCall, deadline: float, deltas: DeltaSink | None = None
    ) -> CallOutcome:
        """Make a call. `deadline` is a time of the event loop; `deltas` receives a completion in parts.

        Raises `Permanent` `refused` if the provider refuses the call, `ProviderUnavailable` if it is busy or away until
        the deadline (in both cases it did nothing), and `UnknownCallOutcome`.
        """
        await self.load()
        number = 1
        while True:
            try:
                return await self._try_once(call, deadline, deltas)
            except ProviderUnavailable as away:
                wait_s = away.retry_after_s or _FIRST_WAIT_S * 2 ** (number - 1) * random.uniform(0.8, 1.2)
                if number >= self._tries or asyncio.get_running_loop().time() + wait_s >= deadline:
                    raise
                log.info("provider.retrying", model=call.model, reason=str(away), number=number)
            await asyncio.sleep(wait_s)
            number += 1

    async def _try_once(self, call: GenerateCall | EmbedCall, deadline: float, deltas: DeltaSink | None) -> CallOutcome:
        remaining_s = deadline - asyncio.get_running_loop().time()
        if remaining_s <= 0:
            raise ProviderUnavailable("no time was left for the provider")
        try:
            if isinstance(call, EmbedCall):
                response = await self._await_answer(self._embed(call), remaining_s)
                answer, used = _vectors(response, len(call.texts)), response.usage
            elif deltas is None:
                response = await self._await_answer(self._generate(call), remaining_s)
                answer, used = completion_of(response), response.usage
            else:
                streamed = await self._await_answer(self._stream(call, deltas), remaining_s)
                answer, used = streamed.answer, streamed.usage
            reported = int(getattr(used, "prompt_tokens", 0) or 0), int(getattr(used, "completion_tokens", 0) or 0)
            tokens = reported if any(reported) else max_call_tokens(call)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise UnknownCallOutcome(f"the provider's answer is invalid: {type(error).__name__}") from error
        return CallOutcome(answer, call.model, CallUsage(self._price(call.model, *tokens), *tokens))

    async def _stream(self, call: GenerateCall, deltas: DeltaSink) -> StreamedCompletion:
        stream = await self._generate(call, stream=True, stream_options={"include_usage": True})
        streamed = StreamedCompletion()
        try:
            async with aclosing(stream):
                async for chunk in stream:
                    if delta := streamed.add(chunk):
                        deltas(call.model, delta)
        except self._litellm.exceptions.openai.OpenAIError as error:
            raise UnknownCallOutcome(f"the provider's stream broke off: {type(error).__name__}") from error
        if stream.received_finish_reason is None:
            # LiteLLM ends a stream that was cut off as if it were complete.
            raise UnknownCallOutcome("the provider's stream broke off")
        if not any(getattr(chunk, "usage", None) for chunk in stream.chunks):
            streamed.usage = None  # LiteLLM's own count, not the provider's
        return streamed

    def _generate(self, call: GenerateCall, **extra: Any) -> Awaitable[Any]:
        if call.json_schema is not None:
            extra["response_format"] = {"type": "json_schema", "json_schema": call.json_schema}
        elif call.as_json:
            extra["response_format"] = {"type": "json_object"}
        if call.tools:
            # LiteLLM would look for tools of MCP servers, with a package that is not installed.
            extra |= {"tools": list(call.tools), "_skip_mcp_handler": True}
        if call.tool_choice is not None:
            extra["tool_choice"] = call.tool_choice
        request: Awaitable[Any] = self._litellm.acompletion(
            model=call.model,
            messages=[
                {"role": each[0], "content": each[1]} if isinstance(each, tuple) else dict(each)
                for each in call.messages
            ],
            max_tokens=call.max_tokens,
            temperature=call.temperature,
            timeout=self._client_timeout_s,
            max_retries=0,
            num_retries=0,
            drop_params=True,
            **extra,
        )
        return request

    def _embed(self, call: EmbedCall) -> Awaitable[Any]:
        extra = {} if call.dimensions is None else {"dimensions": call.dimensions}
        request: Awaitable[Any] = self._litellm.aembedding(
            model=call.model,
            input=list(call.texts),
            encoding_format="float",
            timeout=self._client_timeout_s,
            max_retries=0,
            num_retries=0,
            drop_params=True,
            **extra,
        )
        return request

    async def _await_answer(self, request: Awaitable[Any], remaining_s: float) -> Any:
        outer = self._is_internal.set(True)
        try:
            async with asyncio.timeout(remaining_s):
                return await request
        except TimeoutError as late:
            raise UnknownCallOutcome("the provider did not respond in time") from late
        except self._litellm.exceptions.openai.OpenAIError as error:
            raise _provider_error(error) from error
        finally:
            self._is_internal.reset(outer)

    def _price(self, model: str, input_tokens: int, output_tokens: int) -> Any:
        """Return the price in USD, or `unknown` for a model without a price, for which LiteLLM returns 0."""
        errors = self._litellm.exceptions
        try:
            name, provider, *_ = self._litellm.get_llm_provider(model)
            table = self._litellm.model_cost
            rows: list[dict[str, Any]] = [table[key] for key in (model, f"{provider}/{name}", name) if key in table]
            row = next((row for row in rows if str(row.get("litellm_provider", "")).startswith(provider)), {})
            if "input_cost_per_token" not in row or (output_tokens and "output_cost_per_token" not in row):
                return UNKNOWN
            parts = self._litellm.cost_per_token(
                model=model, prompt_tokens=input_tokens, completion_tokens=output_tokens
            )
        except (errors.openai.OpenAIError, errors.ModelNotMappedError, ValueError, KeyError, TypeError) as error:
            log.info("price.unknown", model=model, reason=type(error).__name__)
            return UNKNOWN
        return dollars(sum(map(dollars, parts)))


def _import_litellm() -> tuple[Any, Any]:
    """Return LiteLLM, and the variable that marks calls as its own, of which it writes no log: nothing reads that log,
    and it would be written before the call is settled."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm

    # The client would import it within the first call, which takes half a second.
    importlib.import_module("openai.resources.chat.completions")
    litellm.suppress_debug_info = True
    return litellm, importlib.import_module("litellm._internal_context").is_internal_call


def _provider_error(error: Any) -> CounterpointError:
    """Map an error of a provider: refused, unavailable, or unknown outcome."""
    kind, status = type(error).__name__, getattr(error, "status_code", None)
    causes = list(_causes(error))
    if any(isinstance(each, _NEVER_SENT) for each in causes):
        return ProviderUnavailable(f"the provider is not reachable: {kind}")
    if status is None or any(type(each).__name__ in _NO_REPLY for each in causes):
        return UnknownCallOutcome(f"the connection to the provider was lost: {kind}")
    if status == 500 and any(isinstance(each, json.JSONDecodeError) or _INVALID in str(each) for each in causes):
        return UnknownCallOutcome(f"the provider's answer is invalid: {kind}")
    if status in _RETRYABLE:
        return ProviderUnavailable(f"the provider returned HTTP {status}", _retry_after_s(error))
    field = "prompt" if status in _PROMPT_ERRORS else "model"
    problem = Problem(field=field, problem=f"the provider returned HTTP {status} ({kind})")
    return Permanent(ErrorCode.REFUSED, (problem,))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    visited: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in visited:
        yield cause
        visited.add(id(cause))
        cause = cause.__cause__ or cause.__context__


def _retry_after_s(error: Any) -> float | None:
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    value = headers.get("retry-after", "")
    return float(value) if value.replace(".", "", 1).isdigit() else None


def _vectors(response: Any, count: int) -> dict[str, Any]:
    """Return the vectors. Raises `ValueError` unless there is one per text."""
    vectors = [each["embedding"] for each in sorted(response.data, key=lambda each: int(each["index"]))]
    if len(vectors) != count:
        raise ValueError(f"{len(vectors)} vectors for {count} texts")
    return {"vectors": [_as_float32(vector) for vector in vectors]}


def _as_float32(vector: list[float]) -> bytes:
    """Pack a vector as little-endian float32."""
    packed = array.array("f", vector)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()

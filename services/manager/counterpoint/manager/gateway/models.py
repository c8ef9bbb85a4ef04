"""Models outside, by LiteLLM, which is imported at the first use: nothing of it runs where no model is configured.

Only its calls and its table of prices are used. Callbacks, budgets and retries of its own are not: the first lose what
they are told, the second let parallel calls through, the third would hide what was paid for twice.
"""

import array
import asyncio
import os
import random
import sys
from collections.abc import Awaitable, Iterator
from typing import Any

import httpx
import structlog

from counterpoint.manager.gateway.calls import CallOutcome, EmbedCall, GenerateCall, max_call_tokens
from counterpoint.manager.gateway.ledger import UNKNOWN, CallUsage, dollars
from counterpoint.proto.errors import CounterpointError, ErrorCode, Permanent, Problem, Transient

log = structlog.get_logger()

_FIRST_WAIT_S = 0.2
_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""HTTP statuses that may be retried: the provider has done nothing."""
_ABOUT_THE_PROMPT = frozenset({400, 413, 422, 451})
"""HTTP statuses about the prompt: too long, or refused."""

_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, ConnectionRefusedError)
_SILENT = frozenset({"Timeout", "APITimeoutError", "APIConnectionError"})
"""By name, in LiteLLM and beneath it: it says 500 for a connection that broke as well, as if that were an answer."""


class UnknownCallOutcome(CounterpointError):
    """The provider may have made the call, but its outcome is unknown."""


class ModelProvider:
    """Calls models. `tries` are those of one call, while its time lasts."""

    def __init__(self, tries: int) -> None:
        self._tries = tries
        self._loading = asyncio.Lock()
        self._litellm: Any = None

    async def load(self) -> None:
        """Import LiteLLM now, beside the loop: it takes seconds."""
        async with self._loading:
            if self._litellm is None:
                self._litellm = await asyncio.to_thread(_imported)

    async def most(self, model: str, input_tokens: int, output_tokens: int) -> CallUsage:
        """Estimate the cost of tokens; `unknown` where the model has no known price."""
        await self.load()
        return CallUsage(self._price(model, input_tokens, output_tokens), input_tokens, output_tokens)

    async def call(self, call: GenerateCall | EmbedCall, deadline: float) -> CallOutcome:
        """Make a call; `deadline` by the clock of the loop.

        Raises `Permanent` `refused` when the provider will not do it, `Transient` when it was busy or away until then
        (both: nothing was done), and `Unanswered`.
        """
        await self.load()
        number = 1
        while True:
            try:
                return await self._once(call, deadline)
            except Transient as away:
                wait_s = away.retry_after_s or _FIRST_WAIT_S * 2 ** (number - 1) * random.uniform(0.8, 1.2)
                if number >= self._tries or asyncio.get_running_loop().time() + wait_s >= deadline:
                    raise
                log.info("provider.retrying", model=call.model, reason=str(away), number=number)
            await asyncio.sleep(wait_s)
            number += 1

    async def _once(self, call: GenerateCall | EmbedCall, deadline: float) -> CallOutcome:
        left_s = deadline - asyncio.get_running_loop().time()
        if left_s <= 0:
            raise Transient("no time was left for the provider")
        asking = self._generate(call, left_s) if isinstance(call, GenerateCall) else self._embed(call, left_s)
        response = await self._await_answer(asking, left_s)
        try:
            answer = _written(response) if isinstance(call, GenerateCall) else _vectors(response, len(call.texts))
            used = response.usage
            told = int(used.prompt_tokens or 0), int(getattr(used, "completion_tokens", 0) or 0)
            tokens = told if any(told) else max_call_tokens(call)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise UnknownCallOutcome(f"the provider's answer is invalid: {type(error).__name__}") from error
        return CallOutcome(answer, call.model, CallUsage(self._price(call.model, *tokens), *tokens))

    def _generate(self, call: GenerateCall, left_s: float) -> Awaitable[Any]:
        extra = {"response_format": {"type": "json_object"}} if call.as_json else {}
        made: Awaitable[Any] = self._litellm.acompletion(
            model=call.model,
            messages=[{"role": role, "content": content} for role, content in call.messages],
            max_tokens=call.max_tokens,
            temperature=call.temperature,
            timeout=left_s,
            max_retries=0,
            num_retries=0,
            drop_params=True,
            **extra,
        )
        return made

    def _embed(self, call: EmbedCall, left_s: float) -> Awaitable[Any]:
        extra = {} if call.dimensions is None else {"dimensions": call.dimensions}
        made: Awaitable[Any] = self._litellm.aembedding(
            model=call.model,
            input=list(call.texts),
            encoding_format="float",
            timeout=left_s,
            max_retries=0,
            num_retries=0,
            drop_params=True,
            **extra,
        )
        return made

    async def _await_answer(self, asking: Awaitable[Any], left_s: float) -> Any:
        try:
            async with asyncio.timeout(left_s):
                return await asking
        except TimeoutError as late:
            raise UnknownCallOutcome("the provider did not respond in time") from late
        except self._litellm.exceptions.openai.OpenAIError as error:
            raise _provider_error(error) from error

    def _price(self, model: str, input_tokens: int, output_tokens: int) -> Any:
        """In USD, or `unknown`. LiteLLM itself says 0 where its table has a model without a price."""
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


def _imported() -> Any:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm

    litellm.suppress_debug_info = True
    return litellm


def _provider_error(error: Any) -> CounterpointError:
    """Map an error of a provider: refused, unavailable, or unknown outcome."""
    kind, status = type(error).__name__, getattr(error, "status_code", None)
    causes = list(_causes(error))
    if any(isinstance(each, _NEVER_SENT) for each in causes):
        return Transient(f"the provider is not reachable: {kind}")
    if status is None or any(type(each).__name__ in _SILENT for each in causes):
        return UnknownCallOutcome(f"the connection to the provider was lost: {kind}")
    if status in _AGAIN:
        return Transient(f"the provider returned HTTP {status}", _retry_after_s(error))
    field = "prompt" if status in _ABOUT_THE_PROMPT else "model"
    problem = Problem(field=field, problem=f"the provider returned HTTP {status} ({kind})")
    return Permanent(ErrorCode.REFUSED, (problem,))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what led to it."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        yield cause
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__


def _retry_after_s(error: Any) -> float | None:
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    said = headers.get("retry-after", "")
    return float(said) if said.replace(".", "", 1).isdigit() else None


def _written(response: Any) -> dict[str, Any]:
    choice = response.choices[0]
    return {"text": choice.message.content or "", "finish": choice.finish_reason or "stop"}


def _vectors(response: Any, wanted: int) -> dict[str, Any]:
    """One vector a text. Raises `ValueError` for more or fewer."""
    vectors = [each["embedding"] for each in sorted(response.data, key=lambda each: int(each["index"]))]
    if len(vectors) != wanted:
        raise ValueError(f"{len(vectors)} vectors for {wanted} texts")
    return {"vectors": [_packed(vector) for vector in vectors]}


def _packed(vector: list[float]) -> bytes:
    """As little-endian float32."""
    packed = array.array("f", vector)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()

"""The gateway to models and web search: reserve, call, settle.

A call is reserved by a commit before it is made and settled by one after it (`reservations.py`).
The answer is stored under the key of the call. A process killed in between leaves a reservation, and the call is not
made a second time.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import structlog

from counterpoint.bus.fair_limiter import FairLimiter
from counterpoint.bus.turns import Urgency
from counterpoint.guard.capabilities import unverified_grant
from counterpoint.manager.gateway.call_request import CallRequest
from counterpoint.manager.gateway.calls import (
    CallOutcome,
    DeltaSink,
    EmbedCall,
    GenerateCall,
    ProviderCall,
    WebSearchCall,
    call_digest,
    max_call_tokens,
)
from counterpoint.manager.gateway.ledger import (
    UNKNOWN,
    CallState,
    CallUsage,
    ModelCallRecord,
    SoftLimitReached,
    dollars,
)
from counterpoint.manager.gateway.ledger_commits import MemoryForOrigin
from counterpoint.manager.gateway.models import ModelProvider, ProviderUnavailable, UnknownCallOutcome
from counterpoint.manager.gateway.provider_limits import ProviderLimits
from counterpoint.manager.gateway.reservations import (
    SETTLE_TIMEOUT_S,
    FoundCall,
    Reservations,
    key_reused,
    unknown_outcome,
)
from counterpoint.manager.gateway.web import WebSearchProvider
from counterpoint.proto.errors import Denied, ErrorCode, Permanent, Problem, Transient
from counterpoint.proto.messages import utc_now

log = structlog.get_logger()

STORED_LIMIT_CHARS = 64 * 1024
CHECKED_EVERY_S = 1.0
"""Interval at which a call in progress is compared with the state of its task, in seconds."""
_NEXT_MODEL = frozenset({ErrorCode.BUDGET, ErrorCode.REFUSED})
"""Errors after which the next model may be called: nothing was done, and it may be cheaper or accept the prompt."""


class ModelGateway:
    """Makes calls for holders of gateway tokens. `memory_for` gives memory for an origin."""

    def __init__(self, memory_for: MemoryForOrigin, limits: ProviderLimits) -> None:
        self._limits = limits
        self._reservations = Reservations(memory_for, limits.job_tokens, limits.approvals)
        self._provider = ModelProvider(limits.tries, limits.call_s)
        self._web = WebSearchProvider(limits.search_url) if limits.search_url else None
        self._limiter = FairLimiter(limits.calls)
        self._paused_until: dict[str, float] = {}
        self._running: dict[tuple[str, str, str], tuple[str, asyncio.Task[CallOutcome]]] = {}

    async def load(self) -> None:
        """Import the model library, where models are configured: it takes seconds."""
        if self._limits.models or self._limits.replay_models or self._limits.embedding_models:
            await self._provider.load()

    async def close(self) -> None:
        """Close the connections to providers."""
        self._reservations.close()
        await self._provider.close()
        if self._web is not None:
            await self._web.close()

    async def check_token(self, token: str) -> None:
        """Check a token before the body of its call is received. Raises `Denied` or `Transient`."""
        grant = unverified_grant(token)
        if grant.audience != "manager":
            raise Denied(ErrorCode.AUDIENCE, "a gateway token")
        await self._reservations.check_token(token, grant)

    def generation(self, model: str | None, token: str) -> str:
        """Return the model for text of a token. Raises `Permanent` `no_model`, or `Denied` `model` for one not
        configured."""
        if model is not None and model not in self._limits.models and unverified_grant(token).replays:
            if model not in self._limits.replayable:
                allowed = ", ".join(self._limits.replayable) or "none is configured"
                raise Denied(ErrorCode.MODEL, f"a model that replays may call: {allowed}")
            return model
        if not self._limits.models:
            raise Permanent(ErrorCode.NO_MODEL, (Problem(field="COUNTERPOINT_MODEL", problem="is not set"),))
        if model is not None and model not in self._limits.models:
            raise Denied(ErrorCode.MODEL, f"one of {', '.join(self._limits.models)}")
        return model or self._limits.models[0]

    def embedding(self, model: str | None) -> str:
        """Return the model for embeddings. Raises as `generation`."""
        models = self._limits.embedding_models
        if not models:
            raise Permanent(ErrorCode.NO_MODEL, (Problem(field="COUNTERPOINT_EMBEDDING_MODEL", problem="is not set"),))
        if model is not None and model not in models:
            raise Denied(ErrorCode.MODEL, f"one of {', '.join(models)}")
        return model or models[0]

    def max_output_tokens(self, requested: int | None) -> int:
        """Return the maximum number of output tokens of a call that asks for `requested`."""
        return min(requested or self._limits.max_tokens, self._limits.max_tokens)

    async def call(
        self, token: str, key: str, call: ProviderCall, wait_s: float | None, deltas: DeltaSink | None = None
    ) -> CallOutcome:
        """Make a call once, or return the outcome of the same call made before. `deltas` receives the parts of a
        completion while the provider sends them; it receives none where the outcome of another call is returned.

        Text is written by the first fallback that can be called if the model of the call cannot: its provider is
        unavailable or refuses, or a budget does not cover it. Over a soft limit a cheaper one is called first. A replay
        has no fallbacks.

        `wait_s` is the deadline in seconds from now. Raises `Denied` for a token that does not cover the call or a
        budget that is spent; `Permanent` when the provider refuses (`refused`), when the key belongs to another call
        (`key_reused`), and when an earlier call has no stored outcome (`unknown_outcome`, `not_kept`); `Transient` when
        nothing was done and the call may be retried.
        """
        grant = unverified_grant(token)
        purpose = "web" if isinstance(call, WebSearchCall) else "model"
        if grant.audience != "manager" or (purpose, "call") not in grant.rights:
            raise Denied(ErrorCode.AUDIENCE, f"a gateway token for {purpose}")
        life_s = (grant.expires_at - utc_now()).total_seconds() - SETTLE_TIMEOUT_S
        if life_s <= 0:
            raise Denied(ErrorCode.EXPIRED, f"a token that is valid for at least {SETTLE_TIMEOUT_S:.0f} s more")
        wait_s = min(wait_s or self._limits.call_s, self._limits.call_s, life_s)
        request = CallRequest(token, grant, key, call, asyncio.get_running_loop().time() + wait_s, deltas=deltas)
        # Memory checks the token: a forged one does not stand in the way of the call with the same key.
        found = await self._reservations.look_up(request)
        running = self._running.get(request.identity)
        if running is not None:
            return await _await_running(request, *running)
        task = asyncio.create_task(self._perform(request, found))
        self._running[request.identity] = call_digest(call), task
        task.add_done_callback(lambda _: self._remove(request, _))
        return await asyncio.shield(task)

    def _remove(self, request: CallRequest, task: "asyncio.Task[CallOutcome]") -> None:
        del self._running[request.identity]
        if not task.cancelled():
            task.exception()

    async def _perform(self, request: CallRequest, found: FoundCall | None) -> CallOutcome:
        """Make a call, or one of its fallbacks; `found` is what was read for it, which is read again after a wait."""
        left_s = request.deadline - asyncio.get_running_loop().time()
        urgency = Urgency()
        if self._limiter.locked():
            urgency, found = await self._reservations.urgency(request), None
        async with self._limiter.slot(request.grant.project, left_s, urgency):
            failure: Denied | Permanent | Transient | None = None
            waiting = deque([(each, await self._estimate(each.call)) for each in self._candidates(request)])
            put_off = set[str]()
            while waiting:
                candidate, estimate = waiting.popleft()
                model = candidate.call.model
                cheaper = model not in put_off and any(_is_cheaper(other, estimate) for _, other in waiting)
                try:
                    first, found = found, None
                    return await self._make(replace(candidate, deferrable=cheaper), estimate, first)
                except SoftLimitReached as reached:
                    put_off.add(model)
                    waiting.append((candidate, estimate))
                    log.info("call.put_off", project=request.grant.project, model=model, why=str(reached))
                except (Denied, Permanent, ProviderUnavailable) as error:
                    if isinstance(error, ProviderUnavailable):
                        paused_until = asyncio.get_running_loop().time() + self._limits.pause_s
                        self._paused_until[model] = paused_until
                    elif _error_code(error) not in _NEXT_MODEL:
                        raise
                    failure = failure or error
                    log.info("call.not_made", project=request.grant.project, model=model, why=str(error))
            raise failure or AssertionError("a request has a candidate")

    def _candidates(self, request: CallRequest) -> Iterator[CallRequest]:
        """Yield the request, then the same by each fallback; models whose providers are paused last. Raises `Denied`
        `model` where the policy permits the project none of them."""
        call, project = request.call, request.grant.project
        if not isinstance(call, GenerateCall):
            yield request
            return
        fallbacks = () if request.grant.replays else self._limits.fallbacks
        permitted = [
            each for each in dict.fromkeys((call.model, *fallbacks)) if self._limits.policy.permits(project, each)
        ]
        if not permitted:
            raise Denied(ErrorCode.MODEL, f"a model that the policy permits project {project}, not {call.model}")
        now = asyncio.get_running_loop().time()
        for model in sorted(permitted, key=lambda model: self._paused_until.get(model, 0.0) > now):
            others = tuple(replace(call, model=other) for other in permitted if other != model)
            yield replace(request, call=replace(call, model=model), others=others)

    async def _make(self, request: CallRequest, estimate: CallUsage, found: FoundCall | None) -> CallOutcome:
        reserved = await self._reservations.reserve(request, estimate, found)
        return reserved if isinstance(reserved, CallOutcome) else await self._call_reserved(request, *reserved)

    async def _call_reserved(self, request: CallRequest, call_id: str, reserved: ModelCallRecord) -> CallOutcome:
        settle = partial(self._reservations.settle, request, call_id, limited_by=reserved.limited_by)
        try:
            outcome = await self._dispatch_while_needed(request)
        except (Transient, Permanent) as error:
            await settle(CallState.RELEASED, CallUsage(dollars(0)), error=str(error))
            raise
        except UnknownCallOutcome as error:
            await settle(CallState.UNKNOWN, reserved.estimate, error=str(error))
            raise unknown_outcome(str(error)) from error
        except Exception as error:
            # The call may have been made: its reservation is ended at the estimate.
            log.error("call.failed", call=call_id, exc_info=error)
            why = f"unexpected {type(error).__name__}"
            await settle(CallState.UNKNOWN, reserved.estimate, error=why)
            raise unknown_outcome(why) from error
        await settle(CallState.SETTLED, outcome.usage, response=_stored_answer(outcome))
        return outcome

    async def _estimate(self, call: ProviderCall) -> CallUsage:
        if isinstance(call, WebSearchCall):
            return CallUsage(dollars(0))
        return await self._provider.estimate(call.model, *max_call_tokens(call))

    async def _dispatch_while_needed(self, request: CallRequest) -> CallOutcome:
        """Make a call, and stop it when its task has ended or its token is revoked."""
        call = asyncio.create_task(self._dispatch(request))
        try:
            while not (await asyncio.wait({call}, timeout=CHECKED_EVERY_S))[0]:
                reason = await self._reservations.reason_to_stop(request)
                if reason and not call.done():
                    raise UnknownCallOutcome(f"the call was stopped: {reason}")
            return call.result()
        finally:
            if call.cancel():
                await asyncio.wait({call})

    async def _dispatch(self, request: CallRequest) -> CallOutcome:
        match request.call:
            case WebSearchCall() if self._web is not None:
                return await self._web.call(request.call, request.deadline)
            case WebSearchCall():
                raise Permanent(
                    ErrorCode.WEB_UNAVAILABLE, (Problem(field="COUNTERPOINT_SEARCH_URL", problem="is not set"),)
                )
            case GenerateCall() | EmbedCall():
                return await self._provider.call(request.call, request.deadline, request.deltas)


def _is_cheaper(one: CallUsage, other: CallUsage) -> bool:
    """Whether the price of a call is known and less than that of another."""
    return one.usd != UNKNOWN and (other.usd == UNKNOWN or one.usd < other.usd)


def _error_code(error: Denied | Permanent) -> str:
    return error.rule if isinstance(error, Denied) else error.code


async def _await_running(request: CallRequest, digest: str, running: "asyncio.Task[CallOutcome]") -> CallOutcome:
    """Wait for a running call. Raises `Permanent` `key_reused` when it is not the same call."""
    if digest != call_digest(request.call):
        raise key_reused(request.key)
    outcome = await asyncio.shield(running)
    return CallOutcome(outcome.answer, outcome.model, outcome.usage, replayed=True)


def _stored_answer(outcome: CallOutcome) -> dict[str, Any] | None:
    """Answer to store with the call; None for vectors, which memory caches by content, and for long answers."""
    if "vectors" in outcome.answer or len(str(outcome.answer)) > STORED_LIMIT_CHARS:
        return None
    return outcome.answer

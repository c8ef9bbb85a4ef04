"""The gateway: each call outside is reserved by a commit before it is made, and settled by one after it.

The token of a call is the capability of both commits, so memory judges it: by its signature, its end, its task, and the
label of what was read. Nothing goes outside before memory has taken the reservation. What came back is kept under the
key of the call; a process killed in between leaves a reservation, and nobody asks a second time.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from weakref import WeakValueDictionary

import structlog
from prometheus_client import Counter

from counterpoint.bus.turns import Turns
from counterpoint.guard.capabilities import Grant, claimed
from counterpoint.manager.calls import Call, Embed, Generate, Outcome, Search, digest, most_tokens
from counterpoint.manager.ledger import UNKNOWN, ModelCall, Spend, State, Taken, dollars
from counterpoint.manager.outside import Outside
from counterpoint.manager.provider import Provider, Unanswered
from counterpoint.manager.websearch import WebSearch
from counterpoint.proto.errors import Conflict, Denied, Permanent, Problem, Transient
from counterpoint.proto.ids import derived_id, new_id
from counterpoint.proto.memory import Commit, Get, Item, Origin, Write
from counterpoint.proto.messages import Shape, utc_now
from counterpoint.proto.tasks import Budget
from counterpoint.recall import Memory, put, record

log = structlog.get_logger()

COST = Counter(
    "counterpoint_llm_cost_usd_total", "What calls of models have cost, as far as known", ["project", "model"]
)
CALLS = Counter("counterpoint_llm_calls_total", "Calls outside by how they ended", ["project", "model", "outcome"])

KEPT_LIMIT_CHARS = 64 * 1024
_TRIES_OF_A_COMMIT = 20
_NUMBERS = 20
"""How often a call under one key may be released and tried again."""
_TO_SETTLE_S = 30.0
"""Of the life of a token, what is left for settling; so long memory may be away."""

Bound = Callable[[Origin], Memory]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call with the token that pays for it."""

    token: str
    grant: Grant
    key: str
    call: Call
    deadline: float

    @property
    def scope(self) -> str:
        """The task or job whose budget it is."""
        return self.grant.task or self.grant.message

    @property
    def place(self) -> tuple[str, str, str]:
        """What the call is known by: a key stands for one call of the work on one message."""
        return self.grant.project, self.grant.message, self.key


class _Budgeted(Shape):
    """What counts here of a task."""

    budget: Budget | None = None


class Gateway:
    """Makes calls for holders of tokens. `bound` gives memory for an origin."""

    def __init__(self, bound: Bound, outside: Outside) -> None:
        self._bound = bound
        self._outside = outside
        self._holder = new_id()
        self._provider = Provider(outside.tries)
        self._web = WebSearch(outside.search_url) if outside.search_url else None
        self._room = Turns(outside.calls)
        self._turns: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._under_way: dict[tuple[str, str, str], tuple[str, asyncio.Task[Outcome]]] = {}

    async def load(self) -> None:
        """What takes long the first time."""
        if self._outside.models or self._outside.embedding_models:
            await self._provider.load()

    async def close(self) -> None:
        """Close what is open to the outside."""
        if self._web is not None:
            await self._web.close()

    def generation(self, model: str | None) -> str:
        """The model to write with. Raises `Permanent` `no_model` and `Denied` `model` for one not configured."""
        if not self._outside.models:
            raise Permanent("no_model", (Problem(field="COUNTERPOINT_MODEL", problem="is not set"),))
        if model is not None and model not in self._outside.models:
            raise Denied("model", f"one of {', '.join(self._outside.models)}")
        return model or self._outside.models[0]

    def embedding(self, model: str | None) -> str:
        """The model to embed with. Raises likewise."""
        known = self._outside.embedding_models
        if not known:
            raise Permanent("no_model", (Problem(field="COUNTERPOINT_EMBEDDING_MODEL", problem="is not set"),))
        if model is not None and model not in known:
            raise Denied("model", f"one of {', '.join(known)}")
        return model or known[0]

    def most_written(self, wanted: int | None) -> int:
        """How many tokens a call may have written."""
        return min(wanted or self._outside.max_tokens, self._outside.max_tokens)

    async def call(self, token: str, key: str, call: Call, wait_s: float | None) -> Outcome:
        """Make a call once, or bring what came of it.

        Raises `Denied` for a token that does not cover it, a budget that is spent, or a key of another call's;
        `Permanent` for what cannot be done, and `unknown_outcome` or `not_kept` for what was done before and cannot be
        told; `Transient`, when nothing was done and it may be tried again.
        """
        grant = claimed(token)
        purpose = "web" if isinstance(call, Search) else "model"
        if grant.audience != "manager" or (purpose, "call") not in grant.rights:
            raise Denied("audience", f"a gateway token for {purpose}")
        life_s = (grant.expires_at - utc_now()).total_seconds() - _TO_SETTLE_S
        if life_s <= 0:
            raise Denied("expired", f"a token that holds for {_TO_SETTLE_S:.0f} s more at least")
        wait_s = min(wait_s or self._outside.call_s, self._outside.call_s, life_s)
        asked = _Asked(token, grant, key, call, asyncio.get_running_loop().time() + wait_s)
        running = self._under_way.get(asked.place)
        if running is not None:
            await self._memory(asked).query(Get(store="spend", id=asked.scope))
            return await _joined(asked, *running)
        task = asyncio.create_task(self._perform(asked))
        self._under_way[asked.place] = digest(call), task
        task.add_done_callback(lambda done: self._over(asked, done))
        return await asyncio.shield(task)

    def _over(self, asked: _Asked, task: "asyncio.Task[Outcome]") -> None:
        del self._under_way[asked.place]
        if not task.cancelled():
            task.exception()

    async def _perform(self, asked: _Asked) -> Outcome:
        left_s = asked.deadline - asyncio.get_running_loop().time()
        async with self._room.turn(asked.grant.project, left_s):
            reserved = await self._reserve(asked)
            return reserved if isinstance(reserved, Outcome) else await self._made(asked, *reserved)

    async def _made(self, asked: _Asked, call_id: str, reserved: ModelCall) -> Outcome:
        try:
            outcome = await self._outcome(asked)
        except (Transient, Permanent) as nothing:
            await self._settle(asked, call_id, "released", Taken(dollars(0)), error=str(nothing))
            raise
        except Unanswered as unanswered:
            await self._settle(asked, call_id, "unknown", reserved.estimate, error=str(unanswered))
            raise _unknown_outcome(str(unanswered)) from unanswered
        except Exception as unforeseen:
            # It may have been done, and must not stay set aside for ever.
            log.error("call.unforeseen", call=call_id, exc_info=unforeseen)
            why = f"unexpected {type(unforeseen).__name__}"
            await self._settle(asked, call_id, "unknown", reserved.estimate, error=why)
            raise _unknown_outcome(why) from unforeseen
        await self._settle(asked, call_id, "settled", outcome.taken, response=_kept(outcome))
        return outcome

    async def _outcome(self, asked: _Asked) -> Outcome:
        match asked.call:
            case Search() if self._web is not None:
                return await self._web.call(asked.call, asked.deadline)
            case Search():
                raise Permanent("web_unavailable", (Problem(field="COUNTERPOINT_SEARCH_URL", problem="is not set"),))
            case Generate() | Embed():
                return await self._provider.call(asked.call, asked.deadline)

    async def _reserve(self, asked: _Asked) -> Outcome | tuple[str, ModelCall]:
        """Set the call aside; or what is kept of it."""
        call, number = asked.call, 0
        estimate = Taken(dollars(0))
        if not isinstance(call, Search):
            estimate = await self._provider.most(call.model, *most_tokens(call))
        async with self._turn(asked):
            for _ in range(_TRIES_OF_A_COMMIT + _NUMBERS):
                call_id = derived_id(asked.grant.message, "call", asked.key, number)
                memory = self._memory(asked)
                known, spends, budget = await _looked_up(memory, asked, call_id)
                if known is not None:
                    before = record(known, ModelCall)
                    if before.state != "released" or before.request_sha256 != digest(call):
                        return await self._known(asked, call_id, before)
                    number += 1
                    continue
                spend = record(spends, Spend) if spends else Spend.begun(asked.grant.task, budget)
                if asked.grant.task is None:
                    spend = spend.model_copy(update={"limit_tokens": self._outside.job_tokens.get(asked.scope)})
                reserved = self._reservation(asked, estimate)
                try:
                    after = spend.with_reserved(estimate)
                except Denied:
                    CALLS.labels(asked.grant.project, call.model, "refused").inc()
                    raise
                writes = (put("model_calls", call_id, reserved), put("spend", asked.scope, after, seen=spends))
                try:
                    reply = await memory.step(Commit(step=f"reserve {call_id}", last=False, writes=writes))
                except Conflict:
                    continue
                if reply.status == "stale":
                    raise Denied("ended", "a task that is still at the work that the token was made for")
                if reply.status == "done":
                    return call_id, reserved
        raise Transient("too many calls of the same task at once", retry_after_s=0.5)

    def _reservation(self, asked: _Asked, estimate: Taken) -> ModelCall:
        now = utc_now()
        left_s = max(asked.deadline - asyncio.get_running_loop().time(), 0.0)
        return ModelCall(
            task_id=asked.grant.task,
            key=asked.key,
            kind=asked.call.kind,
            model=asked.call.model,
            request_sha256=digest(asked.call),
            state="reserved",
            holder=self._holder,
            reserved_at=now,
            deadline=now + timedelta(seconds=left_s + _TO_SETTLE_S),
            estimate_usd=estimate.usd,
            estimate_input_tokens=estimate.input_tokens,
            estimate_output_tokens=estimate.output_tokens,
        )

    async def _known(self, asked: _Asked, call_id: str, before: ModelCall) -> Outcome:
        """What a call that was made before under the same key came to."""
        if before.request_sha256 != digest(asked.call):
            raise _other_call(asked.key)
        match before.state:
            case "settled" if before.response is not None:
                return Outcome(before.response, before.model, before.taken, replayed=True)
            case "settled":
                problem = Problem(field="key", problem="the call was made, but its response is not kept")
                raise Permanent("not_kept", (problem,))
            case "reserved" if before.holder != self._holder and utc_now() < before.deadline:
                raise Transient("another process is making this call", retry_after_s=1.0)
            case "reserved":
                why = "the process that made the call ended before it was settled"
                await self._settle(asked, call_id, "unknown", before.estimate, error=why)
                raise _unknown_outcome(why)
            case _:
                raise _unknown_outcome(before.error or "nobody has heard")

    async def _settle(
        self,
        asked: _Asked,
        call_id: str,
        state: State,
        taken: Taken,
        *,
        response: Mapping[str, Any] | None = None,
        error: str | None = None,
    ) -> None:
        """Write down what became of a call. Tried again while memory is away, until the token has ended."""
        patience = asyncio.get_running_loop().time() + _TO_SETTLE_S
        while True:
            try:
                if await self._settled_once(asked, call_id, state, taken, response, error):
                    self._count(asked, state, taken)
                return
            except Conflict:
                pass
            except Transient as away:
                if asyncio.get_running_loop().time() > patience:
                    log.error("call.unsettled", call=call_id, project=asked.grant.project, reason=str(away))
                    raise
                await asyncio.sleep(away.retry_after_s or 0.2)
            except Permanent as refused:
                if response is None:
                    raise
                log.warning("call.not_kept", call=call_id, project=asked.grant.project, code=refused.code)
                response = None
            except Denied as denied:
                log.error("call.unsettled", call=call_id, project=asked.grant.project, reason=str(denied))
                raise

    async def _settled_once(
        self,
        asked: _Asked,
        call_id: str,
        state: State,
        taken: Taken,
        response: Mapping[str, Any] | None,
        error: str | None,
    ) -> bool:
        memory = self._memory(asked)
        calls, spends = await memory.query(Get(store="model_calls", id=call_id), Get(store="spend", id=asked.scope))
        if not calls.items or not spends.items:
            return False
        (call,), (spend,) = calls.items, spends.items
        before = record(call, ModelCall)
        if before.state != "reserved":
            return False
        ended = before.ended(state, taken, utc_now(), response=response, error=error)
        after = record(spend, Spend).with_settled(before.estimate, state, taken)
        kept = "" if response is not None else " bare"
        writes: tuple[Write, ...] = (
            put("model_calls", call_id, ended, seen=call),
            put("spend", asked.scope, after, seen=spend),
        )
        await memory.step(Commit(step=f"settle {call_id}{kept}", last=False, writes=writes))
        return True

    def _count(self, asked: _Asked, state: State, taken: Taken) -> None:
        project, model = asked.grant.project, asked.call.model
        outcome = "unpriced" if state == "settled" and taken.usd == UNKNOWN else state
        CALLS.labels(project, model, outcome).inc()
        COST.labels(project, model).inc(float(taken.known_usd))

    def _memory(self, asked: _Asked) -> Memory:
        """Memory for one look and one commit: what is read in one is no part of another."""
        grant = asked.grant
        return self._bound(
            Origin(
                message_id=grant.message,
                run=secrets.randbits(48),
                project=grant.project,
                task_id=grant.task,
                capability=asked.token,
            )
        )

    def _turn(self, asked: _Asked) -> asyncio.Lock:
        """Of one budget one reservation at a time, in this process; others are told by the record's version."""
        place = (asked.grant.project, asked.scope)
        lock = self._turns.get(place)
        if lock is None:
            lock = self._turns[place] = asyncio.Lock()
        return lock


async def _looked_up(memory: Memory, asked: _Asked, call_id: str) -> tuple[Item | None, Item | None, Budget | None]:
    """The call, the spending and the budget of the task, as they are now."""
    gets = [Get(store="model_calls", id=call_id), Get(store="spend", id=asked.scope)]
    if asked.grant.task is not None:
        gets.append(Get(store="tasks", id=asked.grant.task))
    items = [found.items[0] if found.items else None for found in await memory.query(*gets)]
    if asked.grant.task is None:
        return items[0], items[1], None
    if items[2] is None:
        raise Denied("task", "a task that may be read, for its budget")
    return items[0], items[1], record(items[2], _Budgeted).budget


async def _joined(asked: _Asked, request: str, running: "asyncio.Task[Outcome]") -> Outcome:
    """What a call under way will come to, when it is the same one."""
    if request != digest(asked.call):
        raise _other_call(asked.key)
    outcome = await asyncio.shield(running)
    return Outcome(outcome.answer, outcome.model, outcome.taken, replayed=True)


def _kept(outcome: Outcome) -> dict[str, Any] | None:
    """What is kept of an answer: no vectors, which memory keeps by content, and nothing that is too long."""
    if "vectors" in outcome.answer or len(str(outcome.answer)) > KEPT_LIMIT_CHARS:
        return None
    return outcome.answer


def _unknown_outcome(why: str) -> Permanent:
    return Permanent("unknown_outcome", (Problem(field="call", problem=why),))


def _other_call(key: str) -> Permanent:
    return Permanent("key_reused", (Problem(field="key", problem=f"{key} stands for another call"),))

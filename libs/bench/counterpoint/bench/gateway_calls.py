"""Calls through the gateway, beside LiteLLM called directly and beside raw transactions on the same rows."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal
from typing import Any

import asyncpg
import httpx

from counterpoint.bench.developer_stack import DeveloperStack
from counterpoint.bench.report import BenchReport, Measurement, p50
from counterpoint.bus import Service
from counterpoint.cli.demo.provider import MODEL, SimulatedProvider
from counterpoint.client import Gateway, Memory
from counterpoint.guard.capabilities import unverified_grant
from counterpoint.guard.policy import policy
from counterpoint.manager.gateway.call_request import CallRequest
from counterpoint.manager.gateway.calls import GenerateCall
from counterpoint.manager.gateway.ledger import CallState, CallUsage
from counterpoint.manager.gateway.reservations import Reservations
from counterpoint.proto.errors import Denied
from counterpoint.proto.ids import new_id
from counterpoint.proto.tasks import TaskDelegated

SAMPLES, WARM_UP, RUNS = 40, 5, 3
PARALLEL = 64
DEADLINE_S = 60
MESSAGES = ({"role": "user", "content": "Why did the load of the orders fail last night? " * 20},)
MAX_TOKENS = 64
LEVELS: tuple[dict[str, Any], ...] = (
    {"scope": "project", "period": "day"},
    {"scope": "project", "period": "month"},
    {"scope": "agent", "period": "total"},
    {"scope": "session", "period": "total"},
)
"""Limits beside the task's own budget."""
_RAW = """
CREATE TABLE bench_spend (id text PRIMARY KEY, body jsonb NOT NULL);
CREATE TABLE bench_calls (id text PRIMARY KEY, body jsonb NOT NULL);
INSERT INTO bench_spend SELECT 'level-' || n, '{"used": 0}' FROM generate_series(0, 4) AS n;
"""
_CHARGE = """
WITH locked AS (SELECT id FROM bench_spend ORDER BY id FOR UPDATE)
UPDATE bench_spend SET body = jsonb_build_object('used', (body->>'used')::int + 1, 'filler', $1::text)
FROM locked WHERE bench_spend.id = locked.id
"""
_RESERVE = "INSERT INTO bench_calls (id, body) VALUES ($1, jsonb_build_object('state', 'reserved', 'filler', $2::text))"
_SETTLE = 'UPDATE bench_calls SET body = body || \'{"state": "settled"}\' WHERE id = $1'
_FILLER = "x" * 400


Call = Callable[[str], Awaitable[float]]
"""A call under a key. Returns the time of its end."""


async def alternated_ms(calls: Sequence[Call], samples: int) -> list[list[float]]:
    """Await calls in turn, each under a key of its own; return the milliseconds of each."""
    durations: list[list[float]] = [[] for _ in calls]
    for number in range(WARM_UP + samples):
        for call, found in zip(calls, durations, strict=True):
            began = time.perf_counter()
            ended = await call(new_id())
            if number >= WARM_UP:
                found.append((ended - began) * 1000)
    return durations


async def measure_single_calls(
    gateway: Gateway, memory: Memory, provider: SimulatedProvider, report: BenchReport
) -> None:
    """Measure what the gateway adds to a call."""
    import litellm

    async def direct(_: str) -> float:
        await litellm.acompletion(
            model=MODEL, messages=list(MESSAGES), max_tokens=MAX_TOKENS, api_base=provider.url, api_key="simulated"
        )
        return time.perf_counter()

    async def through(key: str) -> float:
        await gateway.generate(memory, MESSAGES, key=key, deadline_s=DEADLINE_S, max_tokens=MAX_TOKENS)
        return time.perf_counter()

    name = "the gateway beyond LiteLLM called directly, one call after another, p50"
    await _measure_difference(name, direct, through, 10.0, report)


async def measure_first_token(url: str, memory: Memory, provider: SimulatedProvider, report: BenchReport) -> None:
    """Measure what the gateway adds to the first part of a stream."""
    import litellm

    async with httpx.AsyncClient(base_url=url, timeout=DEADLINE_S, trust_env=False) as client:

        async def direct(_: str) -> float:
            parts = await litellm.acompletion(
                model=MODEL, messages=list(MESSAGES), max_tokens=MAX_TOKENS, stream=True, api_base=provider.url,
                api_key="simulated",
            )  # fmt: skip
            first = 0.0
            async for _ in parts:
                first = first or time.perf_counter()
            return first

        async def through(key: str) -> float:
            headers = {
                "Authorization": f"Bearer {await memory.gateway_token('model')}",
                "Idempotency-Key": key,
            }
            body = {"model": MODEL, "messages": list(MESSAGES), "max_tokens": MAX_TOKENS, "stream": True}
            first = 0.0
            async with client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as reply:
                reply.raise_for_status()
                async for line in reply.aiter_lines():
                    if line.startswith("data:"):
                        first = first or time.perf_counter()
            return first

        name = "the gateway beyond LiteLLM called directly, first part of a stream, p50"
        await _measure_difference(name, direct, through, 15.0, report)


async def _measure_difference(name: str, direct: Call, through: Call, target_ms: float, report: BenchReport) -> None:
    """Measure what a call through the gateway takes longer than the direct one."""
    differences = []
    for _ in range(RUNS):
        report.note_load()
        bare, ours = await alternated_ms((direct, through), SAMPLES)
        differences.append(p50(ours) - p50(bare))
    report.measures.append(Measurement(name, "ms", tuple(differences), target_ms))


async def measure_limits(of: DeveloperStack, report: BenchReport) -> None:
    """Measure parallel calls under five limits, beside raw transactions on as many rows, and what exceeds a limit."""
    for limit in LEVELS:
        (await of.http.put("/v1/limits", json={**limit, "usd": "100"})).raise_for_status()
    ours, raw = list[float](), list[float]()

    async def calls(_: TaskDelegated, memory: Memory) -> None:
        async def call(number: int) -> None:
            await of.gateway.generate(memory, MESSAGES, key=f"c-{number}", deadline_s=DEADLINE_S, max_tokens=MAX_TOKENS)

        began = time.perf_counter()
        await asyncio.gather(*map(call, range(PARALLEL)))
        ours.append(PARALLEL / (time.perf_counter() - began))

    await of.postgres.execute(_RAW)
    for number in range(RUNS):
        report.note_load()
        task = {"kind": "question", "task_id": f"limits-{number}", "description": "Which?", "budget": {"usd": "100"}}
        await of.deliver(task, calls)
        raw.append(await _raw_transactions(of, f"r-{number}"))
    name = f"calls under five limits, {PARALLEL} at once, with LiteLLM, beside raw transactions"
    report.measures.append(Measurement(name, "calls/s", tuple(ours), None, tuple(raw)))
    await _measure_ledger(of, report)
    await _measure_excess(of, report)


async def _measure_ledger(of: DeveloperStack, report: BenchReport) -> None:
    """Measure the reservations and settlements of these calls alone, in this process, beside raw transactions."""
    ours, raw = list[float](), list[float]()
    manager = Service("manager", of.manager_login)
    await manager.connection.open()
    reservations = Reservations(manager.memory_for, {}, policy().approvals)

    async def calls(_: TaskDelegated, memory: Memory) -> None:
        tokens = [await memory.gateway_token("model") for _ in range(PARALLEL)]
        began = time.perf_counter()
        await asyncio.gather(*(_reserve_and_settle(reservations, each, f"l-{n}") for n, each in enumerate(tokens)))
        ours.append(PARALLEL / (time.perf_counter() - began))

    try:
        for number in range(RUNS):
            report.note_load()
            task = {
                "kind": "question",
                "task_id": f"ledger-{number}",
                "description": "Which?",
                "budget": {"usd": "100"},
            }
            await of.deliver(task, calls)
            raw.append(await _raw_transactions(of, f"l-{number}"))
    finally:
        reservations.close()
        await manager.connection.close()
    name = f"reserve and settle on five levels, {PARALLEL} at once, beside raw transactions on as many rows"
    report.measures.append(Measurement(name, "calls/s", tuple(ours), 0.5, tuple(raw), at_least=True))


async def _reserve_and_settle(reservations: Reservations, token: str, key: str) -> None:
    loop = asyncio.get_running_loop()
    call = GenerateCall(MODEL, tuple((each["role"], each["content"]) for each in MESSAGES), MAX_TOKENS)
    request = CallRequest(token, unverified_grant(token), key, call, loop.time() + DEADLINE_S)
    usage = CallUsage(Decimal("0.0001"), 200, MAX_TOKENS)
    reserved = await reservations.reserve(request, usage)
    assert isinstance(reserved, tuple)
    response = {"choices": [{"message": {"content": _FILLER}}]}
    call_id, record = reserved
    await reservations.settle(
        request, call_id, CallState.SETTLED, usage, response=response, limited_by=record.limited_by
    )


async def _raw_transactions(of: DeveloperStack, run: str) -> float:
    """Return the rate of two transactions on the rows of five levels and one call, `PARALLEL` at once."""
    async with asyncpg.create_pool(**of.postgres_login._asdict(), min_size=8, max_size=8) as pool:

        async def call(number: int) -> None:
            for statement, values in ((_RESERVE, (f"{run}-{number}", _FILLER)), (_SETTLE, (f"{run}-{number}",))):
                async with pool.acquire() as connection, connection.transaction():
                    await connection.execute(statement, *values)
                    await connection.execute(_CHARGE, _FILLER)

        began = time.perf_counter()
        await asyncio.gather(*map(call, range(PARALLEL)))
        return PARALLEL / (time.perf_counter() - began)


async def _measure_excess(of: DeveloperStack, report: BenchReport) -> None:
    """Let parallel calls meet a limit that some of them would exceed; report by how much it is exceeded."""
    tokens = 8_000
    excess = list[float]()

    async def calls(message: TaskDelegated, memory: Memory) -> None:
        async def call(number: int) -> bool:
            try:
                await of.gateway.generate(
                    memory, MESSAGES, key=f"x-{number}", deadline_s=DEADLINE_S, max_tokens=MAX_TOKENS
                )
            except Denied:
                return False
            return True

        made = sum(await asyncio.gather(*map(call, range(PARALLEL))))
        if not 0 < made < PARALLEL:
            raise ValueError(f"{made} of {PARALLEL} calls were made: the limit was not met")

    limit = {"scope": "task", "name": "excess", "period": "total"}
    (await of.http.put("/v1/limits", json={**limit, "tokens": tokens})).raise_for_status()
    await of.deliver({"kind": "question", "task_id": "excess", "description": "Which?"}, calls)
    limits = (await of.http.get("/v1/limits")).raise_for_status().json()["items"]
    used = next(each["used_tokens"] for each in limits if each["scope"] == "task")
    excess.append(max(0, used - tokens))
    report.measures.append(Measurement("tokens used beyond a limit", "tokens", tuple(excess), 0.0))

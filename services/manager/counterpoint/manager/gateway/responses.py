"""Responses of the gateway: usage, errors, and completions as streams of events, in the format of OpenAI's API."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import Any, Protocol

from starlette.responses import StreamingResponse

from counterpoint.manager.gateway.calls import CallOutcome, DeltaSink
from counterpoint.manager.gateway.completion import delta_of
from counterpoint.manager.gateway.ledger import UNKNOWN
from counterpoint.proto.errors import CounterpointError, Denied, Permanent, Transient
from counterpoint.proto.ids import new_id


class _StartedCall(Protocol):
    def __call__(self, *, deltas: DeltaSink) -> Awaitable[CallOutcome]: ...


def usage_of(outcome: CallOutcome) -> dict[str, Any]:
    """Return the model, the usage and the cost of a call."""
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


def error_body(error: Exception) -> dict[str, Any]:
    """Return an error as the field `error` of a response or an event."""
    match error:
        case Denied(rule=rule, needed=needed):
            return {"type": "denied", "code": rule, "message": needed}
        case Permanent(code=code, problems=problems):
            listed = [problem.model_dump() for problem in problems]
            return {"type": "permanent", "code": code, "message": str(error), "problems": listed}
        case Transient(retry_after_s=retry_after_s):
            return {"type": "transient", "code": "away", "message": str(error), "retry_after_s": retry_after_s}
        case _:
            return {"type": "transient", "code": "away", "message": str(error)}


async def completion_stream(call: _StartedCall, *, with_usage: bool) -> StreamingResponse:
    """Start a call; return its completion as a stream of events, once the provider has sent the first part of it.

    The last events follow when the call is settled. Raises the errors of a call of which no part was sent.
    """
    parts: asyncio.Queue[tuple[str, Mapping[str, Any]] | None] = asyncio.Queue()
    performing = asyncio.ensure_future(call(deltas=lambda model, delta: parts.put_nowait((model, delta))))
    performing.add_done_callback(lambda done: done.cancelled() or done.exception())
    performing.add_done_callback(lambda _: parts.put_nowait(None))
    first = await parts.get()
    if first is None:
        await performing
    return StreamingResponse(_events(first, parts, performing, with_usage), media_type="text/event-stream")


async def _events(
    part: tuple[str, Mapping[str, Any]] | None,
    parts: "asyncio.Queue[tuple[str, Mapping[str, Any]] | None]",
    performing: "asyncio.Future[CallOutcome]",
    with_usage: bool,
) -> AsyncIterator[str]:
    head = {"id": new_id(), "object": "chat.completion.chunk", "created": int(time.time())}
    in_parts = part is not None

    def event(model: str, delta: Mapping[str, Any], finish: str | None = None, **more: Any) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _event({**head, "model": model, "choices": [choice], **more})

    role: dict[str, Any] = {"role": "assistant"}
    while part is not None:
        model, delta = part
        yield event(model, {**role, **delta})
        role = {}
        part = await parts.get()
    try:
        outcome = await performing
    except CounterpointError as error:
        yield _event({"error": error_body(error)})
        return
    if not in_parts:
        yield event(outcome.model, {**role, **delta_of(outcome.answer)})
    used = usage_of(outcome)
    yield event(outcome.model, {}, outcome.answer["finish"], counterpoint=used["counterpoint"])
    if with_usage:
        yield _event({**head, "choices": [], **used})
    yield "data: [DONE]\n\n"


def _event(data: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(data)}\n\n"

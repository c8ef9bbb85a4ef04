"""Handlers of messages from other systems: tasks and outcomes."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import structlog
from pydantic import TypeAdapter, ValidationError

from counterpoint.bus import Service
from counterpoint.bus.codec import Inbound
from counterpoint.bus.fair_limiter import FairLimiter
from counterpoint.client import Memory, put, record, send
from counterpoint.guard.names import has_secret
from counterpoint.proto.attempts import ReportOutcome
from counterpoint.proto.errors import ErrorCode, Permanent, Problem, Transient
from counterpoint.proto.memory import Commit, Outgoing
from counterpoint.proto.messages import Id
from counterpoint.proto.tasks import SubmitTask, TaskRejected
from counterpoint.proto.validation import check_submission, ignored_fields
from counterpoint.router.intake.admission import Duplicate, IdempotencyKey, Submitter, TaskArrival, with_sender_fields
from counterpoint.router.intake.intake import receive
from counterpoint.router.intake.interventions import Reporter, outcome
from counterpoint.router.intake.outcome_rules import Evidence
from counterpoint.router.intake.priority import urgency_of_body
from counterpoint.router.intake.submissions import STORE, IdempotencyRecord, body_sha256, event_key, request_key

log = structlog.get_logger()

PUBLISHER = "publisher"
LINEAGE_SOURCE = "counterpoint/lineage"
UNKNOWN_TASK_DELIVERIES = 8
"""Deliveries of an outcome before its task counts as unknown, about 20 s: its submission may still arrive."""
_ID: TypeAdapter[str] = TypeAdapter(Id)


class RouterHandlers:
    """The router's handlers. `idempotency` is the lifetime of an Idempotency-Key."""

    def __init__(self, idempotency: timedelta) -> None:
        self._idempotency = idempotency

    async def on_submit(self, message: SubmitTask, memory: Memory) -> Commit:
        """Accept a task. Raises `Permanent` with `invalid` or `conflict`."""
        arrival = TaskArrival(
            task=message,
            task_id=message.task_id or memory.id("task"),
            project=memory.project,
            submitter=Submitter(memory.event[0] if memory.event else PUBLISHER, "system"),
            at=memory.now,
            ignored=ignored_fields(SubmitTask.TYPE, memory.body),
            event=memory.event,
            request=_idempotency_key(memory),
        )
        verdict, commit = await receive(memory, arrival, self._idempotency, expect_new=memory.origin.run == 0)
        if isinstance(verdict, Duplicate):
            log.info("task.duplicate", task_id=verdict.task_id, project=memory.project)
        return commit

    async def on_outcome(self, message: ReportOutcome, memory: Memory) -> Commit:
        """Record the outcome of an attempt.

        Raises `Permanent` with `invalid`, `unknown_task` or `conflict`, and `Transient` while the
        task may still arrive.
        """
        problems = check_submission(message, project=memory.project, received_at=memory.now)
        if problems:
            raise Permanent(ErrorCode.INVALID, problems)
        try:
            return await self._outcome(message, memory)
        except Permanent as error:
            # The fence of an intake message is its delivery count.
            if error.code != ErrorCode.UNKNOWN_TASK or memory.origin.fence >= UNKNOWN_TASK_DELIVERIES:
                raise
            raise Transient(f"task {message.task_id} is not known yet") from error

    async def _outcome(self, message: ReportOutcome, memory: Memory) -> Commit:
        source = memory.event[0] if memory.event else PUBLISHER
        content = body_sha256(message.model_dump(mode="json", exclude_none=True))
        key, existing = _outcome_key(memory), None
        if key is not None and (existing := await memory.get(STORE, key)) is not None:
            known = record(existing, IdempotencyRecord)
            if memory.event is not None or memory.now - known.at < self._idempotency:
                if memory.event is None and known.content_sha256 != content:
                    problem = Problem(field="Nats-Msg-Id", problem="was used with a different outcome")
                    raise Permanent(ErrorCode.IDEMPOTENCY_CONFLICT, (problem,))
                log.info("outcome.duplicate", task_id=message.task_id, project=memory.project)
                return Commit()
        # Another sender may use this source name; the only effect is weaker evidence.
        evidence: Evidence = "observed" if source == LINEAGE_SOURCE else "reported"
        reporter = Reporter(by=await memory.redact_names(source), by_kind="system")
        commit = await outcome(memory, message, reporter, evidence)
        if key is None:
            return commit
        known = IdempotencyRecord(task_id=message.task_id, content_sha256=content, at=memory.now)
        return commit.model_copy(update={"writes": (*commit.writes, put(STORE, key, known, existing=existing))})


def rejected(inbound: Inbound, error: Permanent) -> Sequence[Outgoing]:
    """Return the announcement of a rejected intake message; other messages have none."""
    if inbound.trusted:
        return ()
    task_id = _task_id_in(inbound.body)
    message = TaskRejected(
        ce_id=inbound.event_id if inbound.source else None,
        stream_sequence=inbound.stream_sequence,
        task_id=task_id,
        code=error.code,
        errors=with_sender_fields(error).problems,
    )
    return (send(message, task_id=task_id),)


def register(service: Service, idempotency: timedelta, limiter: FairLimiter) -> None:
    """Register the handlers. `limiter` limits the tasks that are started at once."""
    handlers = RouterHandlers(idempotency)
    service.on(SubmitTask)(handlers.on_submit)
    service.limit_intake(SubmitTask, limiter, urgency_of_body)
    service.on(ReportOutcome)(handlers.on_outcome)
    service.on_rejected(rejected)


def _idempotency_key(memory: Memory) -> IdempotencyKey | None:
    """Return the idempotency key of a bare JSON message, if its sender gave it an id."""
    if memory.request_id is None:
        return None
    return IdempotencyKey(key=request_key(PUBLISHER, memory.request_id), body_sha256=body_sha256(memory.body))


def _outcome_key(memory: Memory) -> str | None:
    """Return the record id of an outcome's event, or of the id of bare JSON; None for a message with neither."""
    if memory.event is not None:
        return event_key(*memory.event)
    return request_key(f"{PUBLISHER}/outcome", memory.request_id) if memory.request_id else None


def _task_id_in(body: Any) -> str | None:
    try:
        task_id = _ID.validate_python(body["task_id"], strict=True)
    except (ValidationError, KeyError, TypeError, IndexError):
        return None
    return None if has_secret(task_id) else task_id

"""What the router does with what comes in by the bus: tasks and outcomes of other systems."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import structlog
from pydantic import TypeAdapter, ValidationError

from counterpoint.bus import Service
from counterpoint.bus.codec import Inbound
from counterpoint.bus.turns import Turns
from counterpoint.guard.names import is_harmless
from counterpoint.proto.attempts import ReportOutcome
from counterpoint.proto.errors import Permanent, Transient
from counterpoint.proto.memory import Commit, Outgoing
from counterpoint.proto.messages import Id
from counterpoint.proto.tasks import SubmitTask, TaskRejected
from counterpoint.proto.validation import check_submission, ignored_fields
from counterpoint.recall import Memory, put, send
from counterpoint.router.admission import Arrival, Duplicate, Keyed, in_senders_words
from counterpoint.router.effects import Evidence
from counterpoint.router.intake import receive
from counterpoint.router.interventions import Sayer, outcome
from counterpoint.router.submissions import STORE, Handled, body_sha256, event_key, request_key

log = structlog.get_logger()

PUBLISHER = "publisher"
LINEAGE_SOURCE = "counterpoint/lineage"
UNKNOWN_TRIES = 8
"""Deliveries of an outcome until its task is taken to be unknown, about 20 s: its submission may be under way beside
it, or still be on its way here."""
_ID: TypeAdapter[str] = TypeAdapter(Id)


class Handlers:
    """The router's handlers. `idempotency` is how long an Idempotency-Key counts."""

    def __init__(self, idempotency: timedelta) -> None:
        self._idempotency = idempotency

    async def on_submit(self, message: SubmitTask, memory: Memory) -> Commit:
        """Accept a task. Raises `Permanent` with `invalid` or `conflict`."""
        arrival = Arrival(
            task=message,
            task_id=message.task_id or memory.id("task"),
            project=memory.project,
            by=memory.event[0] if memory.event else PUBLISHER,
            by_kind="system",
            at=memory.now,
            ignored=ignored_fields(SubmitTask.TYPE, memory.body),
            event=memory.event,
            request=_keyed(memory),
        )
        verdict, commit = await receive(memory, arrival, self._idempotency)
        if isinstance(verdict, Duplicate):
            log.info("task.duplicate", task_id=verdict.task_id, project=memory.project)
        return commit

    async def on_outcome(self, message: ReportOutcome, memory: Memory) -> Commit:
        """Hand on how an attempt went. Raises `Permanent` with `invalid`, `unknown_task` or `conflict`, and `Transient`
        as long as its task may yet come."""
        problems = check_submission(message, project=memory.project, received_at=memory.now)
        if problems:
            raise Permanent("invalid", problems)
        try:
            return await self._outcome(message, memory)
        except Permanent as error:
            # The fence of a message from the intake is the number of its delivery.
            if error.code != "unknown_task" or memory.origin.fence >= UNKNOWN_TRIES:
                raise
            raise Transient(f"task {message.task_id} is not known yet") from error

    async def _outcome(self, message: ReportOutcome, memory: Memory) -> Commit:
        if memory.event is None:
            return await outcome(memory, message, Sayer(by=PUBLISHER, by_kind="system"), "reported")
        key = event_key(*memory.event)
        if await memory.get(STORE, key):
            log.info("outcome.duplicate", task_id=message.task_id, project=memory.project)
            return Commit()
        # An outsider may claim to be lineage; it gains only that its word counts less than a reported one.
        evidence: Evidence = "observed" if memory.event[0] == LINEAGE_SOURCE else "reported"
        sayer = Sayer(by=await memory.harmless(memory.event[0]), by_kind="system")
        commit = await outcome(memory, message, sayer, evidence)
        content = body_sha256(message.model_dump(mode="json", exclude_none=True))
        mark = put(STORE, key, Handled(task_id=message.task_id, content_sha256=content, at=memory.now))
        return commit.model_copy(update={"writes": (*commit.writes, mark)})


def rejected(inbound: Inbound, error: Permanent) -> Sequence[Outgoing]:
    """What is announced of an intake message that is refused for good."""
    task_id = _readable_task_id(inbound.body)
    message = TaskRejected(
        ce_id=inbound.event_id if inbound.source else None,
        stream_sequence=inbound.stream_sequence,
        task_id=task_id,
        code=error.code,
        errors=in_senders_words(error).problems,
    )
    return (send(message, task_id=task_id),)


def register(service: Service, idempotency: timedelta, turns: Turns) -> None:
    """Have the service handle all that the router is handed, tasks in turns."""
    handlers = Handlers(idempotency)
    service.on(SubmitTask)(handlers.on_submit)
    service.in_turn(SubmitTask, turns)
    service.on(ReportOutcome)(handlers.on_outcome)
    service.on_rejected(rejected)


def _keyed(memory: Memory) -> Keyed | None:
    """What bare JSON is known by in its project, when its sender gave it an id: as long as an Idempotency-Key is."""
    if memory.request_id is None:
        return None
    return Keyed(key=request_key(PUBLISHER, memory.request_id), body_sha256=body_sha256(memory.body))


def _readable_task_id(body: Any) -> str | None:
    try:
        task_id = _ID.validate_python(body["task_id"], strict=True)
    except (ValidationError, KeyError, TypeError, IndexError):
        return None
    return task_id if is_harmless(task_id) else None

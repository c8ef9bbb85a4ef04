"""Intake: admission and routing of a submission in one commit, for HTTP and the bus."""

from dataclasses import replace
from datetime import timedelta
from typing import assert_never

from counterpoint.client import Memory, act, decide, put, record, send
from counterpoint.guard.judge import IDS
from counterpoint.guard.names import printable_paths
from counterpoint.guard.policy import policy
from counterpoint.proto.errors import Permanent
from counterpoint.proto.memory import Commit, Get, Item, Write
from counterpoint.proto.tasks import SubmitTask, TaskRouted, TaskSubmitted
from counterpoint.router.intake.admission import (
    Acceptance,
    Duplicate,
    PriorRecords,
    Rejection,
    Submitter,
    TaskArrival,
    admit,
)
from counterpoint.router.intake.lanes import routing
from counterpoint.router.intake.submissions import (
    STORE,
    IdempotencyRecord,
    Submission,
    content_sha256,
    event_key,
    task_key,
)

AGENT = "router"
_FREE_TEXT_AND_IDS = IDS.union(policy().messages[SubmitTask.TYPE].text)
"""Texts and ids of a task. A secret in them causes a refusal; in other fields it is redacted."""


def signer(by_kind: str) -> str:
    """Return the agent that signs for a kind of principal."""
    return {"person": "human", "agent": "calling_llm"}.get(by_kind, AGENT)


async def receive(
    memory: Memory, arrival: TaskArrival, idempotency: timedelta, *, expect_new: bool = False
) -> tuple[Acceptance | Duplicate, Commit]:
    """Return the verdict on an arrival, and its commit. The commit of a duplicate starts nothing.

    With `expect_new` an arrival that can be accepted is taken for a new one without a query: if it is not, its commit
    is a `Conflict`. Secrets in names are redacted. Raises `Permanent` with `conflict`,
    `idempotency_conflict` or `invalid`, and what a query raises.
    """
    names = {name: getattr(arrival.task, name) for name in SubmitTask.model_fields if name not in _FREE_TEXT_AND_IDS}
    by, names = await memory.redact_names((arrival.submitter.name, names))
    arrival = replace(
        arrival,
        submitter=Submitter(by, arrival.submitter.kind),
        task=arrival.task.model_copy(update=names),
        ignored=printable_paths(arrival.ignored),
    )
    keys = {"task": task_key(arrival.task_id)}
    if arrival.event:
        keys["event"] = event_key(*arrival.event)
    if arrival.request:
        keys["request"] = arrival.request.key
    new = admit(arrival, PriorRecords(), idempotency) if expect_new else None
    if isinstance(new, Acceptance):
        return new, _acceptance_commit(memory, arrival, new.submission, _key_writes(arrival, arrival.task_id, keys, {}))
    found = await memory.query(*(Get(store=STORE, id=key) for key in keys.values()))
    items = {name: answer.items[0] for name, answer in zip(keys, found, strict=True) if answer.items}
    prior = PriorRecords(
        task=record(items["task"], Submission) if "task" in items else None,
        event=record(items["event"], IdempotencyRecord) if "event" in items else None,
        request=record(items["request"], IdempotencyRecord) if "request" in items else None,
    )
    verdict = admit(arrival, prior, idempotency)
    match verdict:
        case Rejection(code, problems):
            raise Permanent(code, problems)
        case Duplicate(task_id):
            return verdict, Commit(writes=_key_writes(arrival, task_id, keys, items, renew=False))
        case Acceptance(submission):
            return verdict, _acceptance_commit(
                memory, arrival, submission, _key_writes(arrival, arrival.task_id, keys, items)
            )
        case _:
            assert_never(verdict)


def _key_writes(
    arrival: TaskArrival, task_id: str, keys: dict[str, str], existing: dict[str, Item], *, renew: bool = True
) -> tuple[Write, ...]:
    """Return the records of the event and the Idempotency-Key. `renew` replaces an expired one."""
    contents = {"event": content_sha256(arrival.task)}
    if arrival.request:
        contents["request"] = arrival.request.body_sha256
    return tuple(
        put(
            STORE,
            keys[name],
            IdempotencyRecord(task_id=task_id, content_sha256=content, at=arrival.at),
            existing=existing.get(name),
        )
        for name, content in contents.items()
        if name in keys and (renew or name not in existing)
    )


def _acceptance_commit(
    memory: Memory, arrival: TaskArrival, submission: Submission, key_writes: tuple[Write, ...]
) -> Commit:
    task_id, route = submission.task_id, routing(arrival.task)
    submitted = act(memory, signer(arrival.submitter.kind), "submit", arrival.task.description, task_id=task_id)
    decision = decide(
        memory, AGENT, "route", route.lane, route.reason, task_id=task_id, session_id=arrival.task.session_id
    )
    routed = act(
        memory,
        AGENT,
        "route",
        route.reason,
        task_id=task_id,
        result=route.lane,
        after=(submitted.action_id,),
        decision=decision,
    )
    announced = TaskSubmitted(
        task_id=task_id,
        project=submission.project,
        kind=arrival.task.kind,
        title=submission.title,
        submitted_by=submission.submitted_by,
        ignored=submission.ignored,
        submitted_at=submission.submitted_at,
    )
    handed_on = TaskRouted(
        task_id=task_id,
        project=submission.project,
        task=arrival.task.model_copy(update={"task_id": task_id, "project": None}),
        submitted_by=submission.submitted_by,
        submitted_by_kind=submission.submitted_by_kind,
        submitted_at=submission.submitted_at,
        lane=route.lane,
        reason=route.reason,
        action_id=routed.action_id,
    )
    return Commit(
        writes=(
            put(STORE, task_key(task_id), submission),
            *key_writes,
            put("actions", submitted.action_id, submitted),
            put("actions", routed.action_id, routed),
        ),
        messages=(send(announced), send(handed_on), send(decision)),
    )

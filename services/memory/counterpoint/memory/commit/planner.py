"""Planner: turn a requested commit into rows, messages and an audit leaf. It applies the write filter of the diode.

It does no I/O; the salt of the leaf is the only random value.
"""

import dataclasses
import hashlib
import re
import secrets
from collections.abc import Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from counterpoint.guard.capabilities import Access, Grant
from counterpoint.guard.policy import Policy
from counterpoint.memory.access import diode
from counterpoint.memory.access.refusals import problems_of
from counterpoint.memory.access.screening import PLAIN, Screen, Screening
from counterpoint.memory.commit.dead_letters import dead_rows
from counterpoint.memory.commit.leaf import leaf, read_texts
from counterpoint.memory.commit.planned_messages import check_send, planned_messages, project_of, refs_of
from counterpoint.memory.provenance.read_sets import CANDIDATE, ReadSet, sources_of
from counterpoint.memory.record.plan import CommitPlan, PlannedMessage, PlannedWrite, canonical, storable
from counterpoint.memory.record.stamps import Provenance
from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.errors import Denied, ErrorCode, Permanent, Problem
from counterpoint.proto.ids import derived_id
from counterpoint.proto.memory import (
    Commit,
    CommitReply,
    Origin,
    Outgoing,
    Ref,
    Write,
)
from counterpoint.proto.records import body_problems

WRITES_LIMIT = 500
MESSAGES_LIMIT = 200
_RECORD_ID = re.compile(r"(?!\s|\.{1,2}(?:/|$))[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff]{1,2048}(?<!\s)")


def plan_commit(
    policy: Policy,
    grant: Grant,
    origin: Origin,
    commit: Commit,
    *,
    now: datetime,
    caused_by: Provenance,
    memories: ReadSet,
    task_version: int | None,
    owners: Mapping[tuple[str, str], str] = MappingProxyType({}),
    restored: tuple[PlannedWrite, ...] = (),
    forgets: Mapping[str, Any] | None = None,
    screen: Screen = PLAIN,
) -> CommitPlan:
    """Plan a commit: its rows, messages and audit leaf, redacted for their labels.

    Rows get the provenance of the message and of the read set; `restored` rows keep theirs. `owners` maps existing
    records to their tasks. The leaf of an erasure names the records in `forgets`. Raises `Denied` with the diode's
    rule, and `Permanent` with `too_large`, `sensitive`, `invalid` or `uncited` and the fields.
    """
    provenance = caused_by.with_(memories.provenance)
    screening, writes = Screening(policy, screen), _writes(policy, grant, commit)
    commit_id = derived_id(origin.message_id, "commit", grant.audience, commit.step)
    cited, quoted = _cited(commit.messages, provenance.refs | memories.cited)
    rows = tuple(_write_row(policy, grant, origin, write, provenance, screening, owners) for write in writes) + restored
    rows += dead_rows(policy, screen, commit_id, origin, grant, commit.dead_letter)
    project = project_of(policy, origin.project, rows)
    sending = commit_id, provenance, screening, rows, memories, now
    messages, announcement = planned_messages(policy, grant, origin, commit, *sending)
    screening.settle()
    used, salt = cited | memories.named | _declared(writes), secrets.token_bytes(16)
    reads, answers = read_texts(memories, used, quoted, caused_by, salt)
    reply, settling = _reply(rows, messages), _settles(policy, commit, rows)
    contents = (rows, messages, now, screening.redacted, forgets, reply, reads, answers, caused_by.commit)
    return CommitPlan(
        project=project,
        commit_id=commit_id,
        consumer=grant.audience,
        message_id=origin.message_id,
        step=commit.step,
        last=commit.last,
        fence=origin.fence,
        task_id=origin.task_id,
        task_version=None if settling else task_version,
        ended_ok=settling or _may_be_late(policy, grant, commit, caused_by, rows),
        audit=leaf(project, origin, grant, commit, commit_id, *contents),
        salt=salt,
        reads=reads,
        answers=answers,
        writes=rows,
        messages=messages,
        announcement=announcement,
        cancel_timers=commit.cancel_timers,
        bound_to=grant.task,
        reply=reply,
        provenance=dataclasses.replace(provenance, commit=commit_id, principal=origin.principal),
        traceparent=origin.traceparent,
        cause=caused_by.commit,
    )


def _check(policy: Policy, grant: Grant, commit: Commit) -> None:
    if grant.audience != "memory" and (len(commit.writes) > WRITES_LIMIT or len(commit.messages) > MESSAGES_LIMIT):
        raise Permanent(
            ErrorCode.TOO_LARGE,
            (Problem(field="commit", problem=f"more than {WRITES_LIMIT} writes or {MESSAGES_LIMIT} messages"),),
        )
    for message in commit.messages:
        check_send(policy, grant, message)


def _writes(policy: Policy, grant: Grant, commit: Commit) -> list[Write]:
    """Return the writes of a commit, and those of its messages that are also records.

    Raises `Denied` or `Permanent` for what the commit may not contain.
    """
    _check(policy, grant, commit)
    writes = [*commit.writes, *_records_of(policy, commit.messages)]
    if not commit.last:
        _check_not_last(policy, writes, commit.messages)
    return writes


def _reply(rows: Iterable[PlannedWrite], messages: Iterable[PlannedMessage]) -> CommitReply:
    versions = {f"{ref.store}/{ref.id}": ref.version for ref in refs_of(rows)}
    return CommitReply(status="done", versions=versions, message_ids=tuple(message.id for message in messages))


def _settles(policy: Policy, commit: Commit, rows: tuple[PlannedWrite, ...]) -> bool:
    """Whether a commit only updates records that settle work begun earlier, such as reservations of spend."""
    return bool(rows) and not commit.messages and all(r.expect > 0 and policy.stores[r.store].settles for r in rows)


def _may_be_late(
    policy: Policy, grant: Grant, commit: Commit, caused_by: Provenance, rows: Iterable[PlannedWrite]
) -> bool:
    """Whether a commit is allowed after the end of its task."""
    if grant.task is None or commit.dead_letter is not None:
        return True
    return diode.after_end(policy, caused_by.type, {row.store for row in rows}, {m.type for m in commit.messages})


def _records_of(policy: Policy, outgoing: Iterable[Outgoing]) -> list[Write]:
    """Return a write for each message that is also a record, whose body is validated as such. Raises `Permanent`
    `invalid`."""
    records = []
    for message in outgoing:
        store = policy.messages[message.type].keep if message.type in policy.messages else None
        if store is not None:
            try:
                records.append(Write(store=store, id=message.data.get("decision_id"), body=message.data))
            except ValidationError as error:
                raise Permanent(ErrorCode.INVALID, problems_of(error)) from error
    return records


def _check_not_last(policy: Policy, writes: Iterable[Write], outgoing: Iterable[Outgoing]) -> None:
    """Check that a step before the last does not change workflow state. Raises `Denied`."""
    for write in writes:
        if write.store == "tasks":
            raise Denied(ErrorCode.STEP, "the last step, to change workflow state")
    for message in outgoing:
        if message.type in policy.messages and policy.messages[message.type].workflow:
            raise Denied(ErrorCode.STEP, "the last step, to send a workflow message")


def _write_row(
    policy: Policy,
    grant: Grant,
    origin: Origin,
    write: Write,
    provenance: Provenance,
    screening: Screening,
    owners: Mapping[tuple[str, str], str],
) -> PlannedWrite:
    if not _RECORD_ID.fullmatch(screening.id(f"writes.{write.store}.id", write.id)):
        problem = "contains control characters, leading or trailing spaces, or starts like a path to a parent folder"
        raise Permanent(ErrorCode.INVALID, (Problem(field=f"writes.{write.store}.id", problem=problem),))
    body = write.body or {}
    task = write.id if write.store == "tasks" else body.get("task_id", origin.task_id)
    if grant.task is not None and body.get("task_id", grant.task) != grant.task:
        raise Denied(ErrorCode.TASK, "a record about the capability's task")
    if grant.task is not None and owners.get((write.store, write.id), grant.task) != grant.task:
        raise Denied(ErrorCode.TASK, "a record of the capability's task, not of another")
    agent = str(body["agent"]) if write.store in diode.ALWAYS and "agent" in body else grant.audience
    signer = agent if agent != grant.audience else policy.services[grant.audience].agents[0]
    label = max(policy.store_level(write.store), provenance.label) if write.store in policy.stores else 0
    rule = diode.write(policy, grant, write.store, signer, task, label)
    if rule is not None:
        raise Denied(rule, f"the right to write {write.store} as {signer}")
    if not policy.stores[write.store].states_outcome(grant.audience, body):
        raise Denied(ErrorCode.STORE, f"the right to state an outcome in {write.store}")
    text = None
    if write.body is not None:
        where = f"{write.store}/{write.id}"
        redacted = screening.kept(where, write.body, policy.stores[write.store].text, label)
        text = storable(canonical(_checked_body(where, write, redacted)), where)
    return PlannedWrite(
        store=write.store,
        id=write.id,
        expect=write.expect,
        body=text,
        task_id=task,
        author=agent,
        label=label,
        integrity=provenance.integrity,
        sha256=hashlib.sha256((text or "").encode()).digest(),
        schema_version=write.schema_version,
    )


def _checked_body(where: str, write: Write, body: dict[str, Any]) -> dict[str, Any]:
    """Return the body. Raises `Permanent` `invalid` with the fields that do not match the schema of the store."""
    problems = body_problems(write.store, body, write.schema_version)
    if problems:
        fields = (Problem(field=f"writes.{where}.{each.field}", problem=each.problem) for each in problems)
        raise Permanent(ErrorCode.INVALID, tuple(fields))
    return body


def _cited(outgoing: Iterable[Outgoing], known: frozenset[Ref]) -> tuple[frozenset[Ref], frozenset[Ref]]:
    """Return the sources of the messages, and the items that they only quote as candidates.

    Raises `Permanent` `uncited` for an item that was not read.
    """
    named, quoted = set[Ref](), set[Ref]()
    for message in outgoing:
        findings = message.data.get("findings") or {}
        if not isinstance(findings, dict):
            raise Permanent(ErrorCode.INVALID, (Problem(field="findings", problem="must be an object"),))
        sources = message.data.get("sources") if message.type == DecisionMade.TYPE else None
        for cited in (*(sources or ()), *(findings.get("citations") or ())):
            try:
                ref = Ref.model_validate(cited)
            except ValidationError as error:
                raise Permanent(ErrorCode.INVALID, problems_of(error)) from error
            if ref not in known:
                raise Permanent(
                    ErrorCode.UNCITED,
                    (Problem(field="sources", problem=f"{ref.store}/{ref.id} was not read at version {ref.version}"),),
                )
            (quoted if cited.get("role") == CANDIDATE else named).add(ref)
    return frozenset(named), frozenset(quoted - named)


def _declared(writes: Iterable[Write]) -> frozenset[Ref]:
    """Return the sources that the written records name themselves."""
    return frozenset(
        Ref(store=each["store"], id=each["id"], version=each["version"])
        for write in writes
        for each in sources_of(write.body)
    )


def owned(policy: Policy, grant: Grant, commit: Commit) -> tuple[tuple[str, str], ...]:
    """Return store and id of the changed records that must belong to the task of the grant."""
    if grant.task is None:
        return ()
    stores = policy.stores
    return tuple(
        (write.store, write.id)
        for write in commit.writes
        if write.expect > 0 and write.store != "tasks" and write.store in stores and not stores[write.store].common
    )


def accesses_of(commit: Commit) -> tuple[Access, ...]:
    """Return the accesses of a commit, to be checked against an attenuated capability.

    An empty commit counts as a write of the inbox, so that the expiry of the capability is checked.
    """
    writes = [
        Access(write.store, "write", str(write.body.get("agent", "")) if write.body else "") for write in commit.writes
    ]
    sends = [Access(message.type, "send", str(message.data.get("agent", ""))) for message in commit.messages]
    timers = [Access("timers", "cancel") for _ in commit.cancel_timers[:1]]
    dead_letters = [Access("dead_letters", "write")] if commit.dead_letter is not None else []
    return (*writes, *sends, *timers, *dead_letters) or (Access("inbox", "write"),)

"""Planned messages: the messages of a commit, and the events that announce its dead letter and its changed records."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from counterpoint.guard.capabilities import Grant
from counterpoint.guard.policy import Policy
from counterpoint.memory.access import diode
from counterpoint.memory.access.screening import Screening
from counterpoint.memory.commit.dead_letters import died
from counterpoint.memory.provenance.read_sets import ReadSet
from counterpoint.memory.record.message_bodies import CommitTexts, StoredBody
from counterpoint.memory.record.plan import SYSTEM, PlannedMessage, PlannedWrite, canonical, storable
from counterpoint.memory.record.stamps import Provenance
from counterpoint.proto import subjects
from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.errors import Denied, ErrorCode
from counterpoint.proto.ids import derived_id
from counterpoint.proto.memory import Commit, Origin, Outgoing, RecordsChanged, Ref
from counterpoint.proto.tasks import ENDED


def planned_messages(
    policy: Policy,
    grant: Grant,
    origin: Origin,
    commit: Commit,
    commit_id: str,
    provenance: Provenance,
    screening: Screening,
    rows: tuple[PlannedWrite, ...],
    memories: ReadSet,
    now: datetime,
) -> tuple[tuple[PlannedMessage, ...], PlannedMessage | None]:
    """Return the messages of a commit, with the event that announces its dead letter, and the event that announces its
    changed records if no service acts on it."""
    outgoing = list(commit.messages)
    if commit.dead_letter is not None:
        outgoing.append(died(commit_id, grant, commit.dead_letter))
    bodies = _Bodies(policy, screening, rows, policy.message_level(provenance.label))
    messages = [
        _message_row(policy, grant, origin, commit_id, index, message, provenance, bodies)
        for index, message in enumerate(outgoing)
    ]
    if not rows or project_of(policy, origin.project, rows) != origin.project:
        return tuple(messages), None
    ended = any(w.store == "tasks" and w.body is not None and w.body.get("state") in ENDED for w in commit.writes)
    changed = _announcement(commit_id, origin, grant, now, tuple(memories.scores), refs_of(rows), ended=ended)
    announced = _message_row(policy, grant, origin, commit_id, len(outgoing), changed, provenance, bodies)
    audience = _interested(policy, grant.audience, rows, ended=ended)
    if not audience:
        return tuple(messages), replace(announced, audience=())
    return (*messages, replace(announced, audience=audience)), None


def _interested(policy: Policy, service: str, rows: Iterable[PlannedWrite], *, ended: bool) -> tuple[str, ...]:
    """Return the services that act on the records of a commit; on those of tasks only when the task has ended."""
    written = {row.store for row in rows if row.store != "tasks" or ended}
    consumers = policy.messages[RecordsChanged.TYPE].audience
    return tuple(
        name for name in consumers if not written.isdisjoint(policy.services[name].changes_of.get(service, ()))
    )


def refs_of(rows: Iterable[PlannedWrite]) -> tuple[Ref, ...]:
    """Return the versions that the rows create."""
    return tuple(Ref(store=row.store, id=row.id, version=row.expect + 1) for row in rows)


def project_of(policy: Policy, requested: str, rows: Iterable[PlannedWrite]) -> str:
    """Return the project of the rows: `SYSTEM` for system stores, else the project of the request. Raises `Denied`."""
    scopes = {policy.stores[row.store].system for row in rows}
    if len(scopes) > 1:
        raise Denied(ErrorCode.STORE, "a commit inside one project, or outside all")
    return SYSTEM if scopes == {True} else requested


def check_send(policy: Policy, grant: Grant, message: Outgoing) -> None:
    """Check that a message may be sent. Raises `Denied`."""
    body_task = message.data.get("task_id")
    if message.task_id is not None and body_task is not None and message.task_id != body_task:
        raise Denied(ErrorCode.TASK, "a message about one task")
    rule = diode.send(policy, grant, message.type, message.task_id or body_task)
    if rule is not None:
        raise Denied(rule, f"the right to send {message.type}")
    signer = str(message.data.get("agent"))
    if message.type == DecisionMade.TYPE and not policy.services[grant.audience].signs(signer):
        raise Denied(ErrorCode.AGENT, f"the right to sign as {signer}")


class _Bodies:
    """Bodies of the messages of a commit, screened for the `label` level, and as they are stored beside its rows."""

    def __init__(self, policy: Policy, screening: Screening, rows: tuple[PlannedWrite, ...], label: int) -> None:
        self._policy = policy
        self._screening = screening
        self._rows = rows
        self._label = label
        self._texts = CommitTexts([row.body if row.place is None else None for row in rows])
        self._index = {(row.store, row.id): n for n, row in enumerate(rows)}

    def of(self, message: Outgoing) -> tuple[str, StoredBody]:
        """Return the body of a message. One that is also a record was screened as such, if the same rules apply."""
        rules = self._policy.messages[message.type]
        if rules.keep is not None and self._policy.stores[rules.keep].text == rules.text:
            index = self._index.get((rules.keep, str(message.data.get("decision_id"))))
            row = None if index is None else self._rows[index]
            if row is not None and row.body is not None and row.label == self._label:
                return row.body, self._texts.stored(row.body, {})
        data = message.data
        if message.type == RecordsChanged.TYPE:
            # It names records, whose ids were screened when they were written, and the task of the commit.
            self._screening.id("task_id", str(data.get("task_id", "")))
        else:
            data = self._screening.kept(message.type, data, rules.text, self._label)
        body = storable(canonical(data), message.type)
        return body, self._texts.stored(body, data)


def _message_row(
    policy: Policy,
    grant: Grant,
    origin: Origin,
    commit_id: str,
    index: int,
    message: Outgoing,
    provenance: Provenance,
    bodies: "_Bodies",
) -> PlannedMessage:
    task = message.task_id or message.data.get("task_id")
    row = policy.messages[message.type]
    body, stored = bodies.of(message)
    agent = str(message.data.get("agent", "*"))
    subject = subjects.of(message.type, origin.project, agent=agent, service=grant.audience)
    return PlannedMessage(
        id=derived_id(commit_id, index),
        type=message.type,
        subject=subject,
        task_id=task,
        versioned=row.workflow or message.timer is not None,
        audience=row.audience,
        body=body,
        label=provenance.label,
        integrity=provenance.integrity,
        due_at=message.due_at,
        timer=message.timer,
        live=message.due_at is None and subject.startswith(f"{subjects.LIVE_ONLY}."),
        result=row.result,
        stored=stored,
    )


def _announcement(
    commit_id: str,
    origin: Origin,
    grant: Grant,
    now: datetime,
    reads: tuple[Ref, ...],
    writes: tuple[Ref, ...],
    *,
    ended: bool,
) -> Outgoing:
    changed = RecordsChanged(
        commit_id=commit_id,
        project=origin.project,
        service=grant.audience,
        task_id=origin.task_id,
        reads=reads[:200],
        writes=writes[:200],
        ended=ended,
        at=now,
    )
    return Outgoing(type=RecordsChanged.TYPE, data=changed.model_dump(mode="json", exclude_none=True))

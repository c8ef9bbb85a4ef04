"""Leaves of the audit log: what a commit, or a refusal, is accounted for with; and read sets as they are kept."""

import hashlib
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from counterpoint.guard.capabilities import Grant
from counterpoint.guard.names import empty_fingerprint, has_secret, is_project, redact_name
from counterpoint.memory.provenance.read_sets import COMMITS_USED, ReadSet
from counterpoint.memory.record.plan import CommitPlan, PlannedMessage, PlannedWrite, canonical, inbox_reply
from counterpoint.memory.record.stamps import Provenance
from counterpoint.proto import subjects
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Commit, CommitReply, Origin, Ref

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DECIMALS = 4


def leaf(
    project: str,
    origin: Origin,
    grant: Grant,
    commit: Commit,
    commit_id: str,
    rows: tuple[PlannedWrite, ...],
    messages: tuple[PlannedMessage, ...],
    own: frozenset[Ref],
    now: datetime,
    redacted: list[list[str]],
    forgets: Mapping[str, Any] | None,
    reply: CommitReply,
    reads: str | None,
    cause: str | None,
) -> str:
    """The body of a commit's leaf: of every row that the commit makes what decides something, and its `own` reads.
    Those that came with its message are its cause's. What the database gives it, its place and time, is put in front of
    it there."""
    return canonical(
        {
            **({"erased": forgets} if forgets is not None else {}),
            **({"redacted": redacted} if redacted else {}),
            "commit": commit_id,
            "project": project,
            "inbox": [commit.last, origin.fence, reply.status, _sha256(inbox_reply(reply))],
            "read_set": None if reads is None and cause is None else [cause, _sha256(reads or "[]")],
            **({"cancels": list(commit.cancel_timers)} if commit.cancel_timers else {}),
            "service": grant.audience,
            "message": origin.message_id,
            "step": commit.step,
            "principal": origin.principal,
            "task": origin.task_id,
            "writes": [[row.store, row.id, row.expect + 1, row.sha256.hex(), row.stamps] for row in rows],
            "messages": [_sent(message) for message in messages],
            "reads": sorted([r.store, r.id, r.version] for r in own),
            "at": now.isoformat(),
        }
    )


def also_sending(prepared: CommitPlan, messages: Sequence[PlannedMessage]) -> CommitPlan:
    """The same commit with more messages, which its leaf has too."""
    said = json.loads(prepared.audit)
    said["messages"] += [_sent(message) for message in messages]
    sent = (*prepared.messages, *messages)
    reply = prepared.reply.model_copy(update={"message_ids": tuple(message.id for message in sent)})
    return replace(prepared, messages=sent, reply=reply, audit=canonical(said))


def stored_reply(inbox: Any, body: str | None) -> CommitReply:
    """Return the reply to an applied step, made of its row in the inbox and its leaf; without versions and messages if
    the leaf was erased. Earlier releases stored whole replies."""
    reply = CommitReply.model_validate(inbox)
    if body is None or reply.versions or reply.message_ids:
        return reply
    said = json.loads(body)
    versions = {f"{store}/{record_id}": version for store, record_id, version, *_ in said["writes"]}
    return reply.model_copy(update={"versions": versions, "message_ids": tuple(sent[0] for sent in said["messages"])})


def _sent(message: PlannedMessage) -> list[Any]:
    return [message.id, message.type, _sha256(message.body), message.stamps]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _ref_key(ref: Ref) -> tuple[str, str, int]:
    return ref.store, ref.id, ref.version


def read_set(memories: ReadSet, cited: frozenset[Ref], quoted: frozenset[Ref], caused_by: Provenance) -> str | None:
    """Return the read set of a commit as it is stored: the score of each item, its role (cited, quoted as a
    candidate, shown, or carried over from another delivery), whether it is of the shared project, and the commit whose
    result was used. Items that only the message carried are in the read sets of its causes."""
    rows: list[list[Any]] = []
    for ref in sorted(memories.provenance.refs | cited | quoted, key=_ref_key):
        named = "cited" if ref in cited else "quoted" if ref in quoted else None
        how = named or ("shown" if ref in memories.scores else "carried")
        score = memories.scores.get(ref)
        rows.append([*_ref_key(ref), None if score is None else round(score, _DECIMALS), how, ref in memories.shared])
    if caused_by.result and caused_by.commit is not None:
        rows.append([COMMITS_USED, caused_by.commit, 1, None, "cited", False])
    return canonical(rows) if rows else None


def refusal(caller: str, origin: Origin, what: str, rule: str, needed: str, now: datetime) -> CommitPlan:
    """The audit leaf of something that was refused, without what is secret in the names that it quotes. What is no id
    of a task is not filed as one, and what is no name of a project under the default one."""
    known = origin.task_id is not None and _ID.fullmatch(origin.task_id) is not None and not has_secret(origin.task_id)
    task = origin.task_id if known else None
    refusal_id = new_id()
    project = origin.project if is_project(origin.project) else subjects.DEFAULT_PROJECT
    body = {
        "refusal": refusal_id,
        "project": project,
        "refused": redact_name(what, empty_fingerprint),
        "rule": redact_name(rule, empty_fingerprint),
        "needed": redact_name(needed, empty_fingerprint),
        "service": caller,
        "message": origin.message_id,
        "principal": origin.principal,
        "task": task,
        "at": now.isoformat(),
    }
    return CommitPlan(
        project=project,
        commit_id=refusal_id,
        consumer=caller,
        message_id="",
        step="",
        last=False,
        fence=0,
        task_id=task,
        task_version=None,
        ended_ok=True,
        kind="refusal",
        audit=canonical(body),
        salt=secrets.token_bytes(16),
        reads=None,
    )

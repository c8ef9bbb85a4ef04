"""Leaves of the audit log, one for each commit and each refusal; and read sets in their stored form."""

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from counterpoint.guard.capabilities import Grant
from counterpoint.guard.names import empty_fingerprint, has_secret, is_project, redact_name
from counterpoint.memory.audit.leaf_body import CompactRows, text_hash
from counterpoint.memory.provenance.read_sets import COMMITS_USED, ReadAnswer, ReadSet
from counterpoint.memory.record.plan import CommitPlan, PlannedMessage, PlannedWrite, canonical
from counterpoint.memory.record.stamps import Provenance
from counterpoint.proto import subjects
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Commit, CommitReply, Origin, Ref, salted

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def leaf(
    project: str,
    origin: Origin,
    grant: Grant,
    commit: Commit,
    commit_id: str,
    rows: tuple[PlannedWrite, ...],
    messages: tuple[PlannedMessage, ...],
    now: datetime,
    redacted: list[list[str]],
    forgets: Mapping[str, Any] | None,
    reply: CommitReply,
    reads: str | None,
    answers: str | None,
    cause: str | None,
) -> str:
    """Return the body of a commit's leaf: hashes and stamps of its rows and messages, and the hash of its read set.

    It is compact: see `leaf_body`. The database prepends `placed`: positions and time.
    """
    compact = CompactRows()
    writes = [compact.write(row.store, row.id, row.expect + 1, row.sha256, row.stamps) for row in rows]
    sent = [_leaf_message(message, compact) for message in messages]
    return canonical(
        {
            **({"erased": forgets} if forgets is not None else {}),
            **({"redacted": redacted} if redacted else {}),
            "commit": commit_id,
            "project": project,
            "inbox": [commit.last, origin.fence, reply.status],
            "read_set": None
            if reads is None and cause is None
            else [cause, *map(text_hash, _of_read_set(reads, answers))],
            **({"cancels": list(commit.cancel_timers)} if commit.cancel_timers else {}),
            "service": grant.audience,
            "message": origin.message_id,
            "step": commit.step,
            "principal": origin.principal,
            "task": origin.task_id,
            "writes": writes,
            "messages": sent,
            **compact.lists,
            "at": now.isoformat(),
        }
    )


def with_messages(plan: CommitPlan, messages: Sequence[PlannedMessage]) -> CommitPlan:
    """Return the plan with more messages, added to its leaf and its reply too."""
    body = json.loads(plan.audit)
    compact = CompactRows(body)
    body["messages"] += [_leaf_message(message, compact) for message in messages]
    body |= compact.lists
    sent = (*plan.messages, *messages)
    reply = plan.reply.model_copy(update={"message_ids": tuple(message.id for message in sent)})
    return replace(plan, messages=sent, reply=reply, audit=canonical(body))


def stored_reply(inbox: Any, leaf_body: str | None) -> CommitReply:
    """Return the reply to an applied step, from its row in the inbox and its leaf.

    It has no versions and messages if the leaf was erased. Earlier releases stored whole replies.
    """
    reply = CommitReply.model_validate(inbox)
    if leaf_body is None or reply.versions or reply.message_ids:
        return reply
    body = json.loads(leaf_body)
    versions = {f"{store}/{record_id}": version for store, record_id, version, *_ in body["writes"]}
    return reply.model_copy(update={"versions": versions, "message_ids": tuple(sent[0] for sent in body["messages"])})


def _leaf_message(message: PlannedMessage, compact: CompactRows) -> list[Any]:
    repeated = None
    if message.stored is not None and message.stored.records is not None and message.stored.parts is None:
        (repeated,) = message.stored.records
    return compact.message(message.id, message.type, message.body, repeated, message.stamps)


def _of_read_set(reads: str | None, answers: str | None) -> list[str]:
    return [reads or "[]", *([] if answers is None else [answers])]


def _ref_key(ref: Ref) -> tuple[str, str, int]:
    return ref.store, ref.id, ref.version


def read_texts(
    memories: ReadSet, cited: frozenset[Ref], quoted: frozenset[Ref], caused_by: Provenance, salt: bytes
) -> tuple[str | None, str | None]:
    """Return the read set of a commit and its answers as they are stored; None for one that is empty."""
    refs = sorted(memories.provenance.refs | cited | quoted, key=_ref_key)
    return _read_set(refs, memories, cited, quoted, caused_by), _answers(refs, memories, salt)


def _read_set(
    refs: Sequence[Ref], memories: ReadSet, cited: frozenset[Ref], quoted: frozenset[Ref], caused_by: Provenance
) -> str | None:
    """Return the items of a read set.

    An item has its role at index 4: `cited`, `quoted` as a candidate, `carried` from another delivery, or none if it
    was only shown; and at index 5 whether it is of the shared project. Earlier releases have its score at index 3,
    which the answers have too. The last row is the commit whose result was used. Items that only the message carried
    are in the read sets of its causes.
    """
    rows: list[list[Any]] = []
    for ref in refs:
        named = "cited" if ref in cited else "quoted" if ref in quoted else None
        role = named or (None if ref in memories.scores else "carried")
        if ref in memories.shared:
            rows.append([*_ref_key(ref), None, role, True])
        else:
            rows.append([*_ref_key(ref), *((None, role) if role else ())])
    if caused_by.result and caused_by.commit is not None:
        rows.append([COMMITS_USED, caused_by.commit, 1, None, "cited"])
    return canonical(rows) if rows else None


def _answers(refs: Sequence[Ref], memories: ReadSet, salt: bytes) -> str | None:
    """Return the answers of a read set, by request.

    An answer has the salted hash of its query, its outline, the names of scores, and its items: the index in the read
    set, the score, the index of the names and the scores by name, and whether it is of the shared project. With the
    records, that is all a delivery was given. The salt is that of the leaf: when it is erased, nothing can be guessed
    from the hashes.
    """
    if not any(memories.answers):
        return None
    index = {ref: n for n, ref in enumerate(refs)}
    return canonical([[_answer(answer, index, salt) for answer in request] for request in memories.answers])


def _answer(answer: ReadAnswer, index: Mapping[Ref, int], salt: bytes) -> list[Any]:
    outline, names = answer.outline, dict[tuple[str, ...], int]()
    items = [[index[item.ref], item.score, _scores(item.scores, names), int(item.shared)] for item in answer.items]
    return [
        salted(answer.query, salt), outline.tier, outline.plan, outline.partial, outline.next_cursor, outline.complete,
        list(names), [_without_end(item) for item in items],
    ]  # fmt: skip


def _scores(scores: Mapping[str, float] | None, names: dict[tuple[str, ...], int]) -> list[float] | None:
    return None if scores is None else [names.setdefault(tuple(scores), len(names)), *scores.values()]


def _without_end(item: list[Any]) -> list[Any]:
    """Return the item without the values at its end that are absent."""
    *others, scores, shared = item
    if shared or scores is not None:
        return item if shared else [*others, scores]
    return others if others[1] is not None else others[:1]


def refusal(caller: str, origin: Origin, operation: str, rule: str, needed: str, now: datetime) -> CommitPlan:
    """Return the plan of a refusal: its audit leaf, with secrets in names redacted.

    An invalid task id is omitted; an invalid project name is replaced by the default project.
    """
    valid = origin.task_id is not None and _ID.fullmatch(origin.task_id) is not None and not has_secret(origin.task_id)
    task = origin.task_id if valid else None
    refusal_id = new_id()
    project = origin.project if is_project(origin.project) else subjects.DEFAULT_PROJECT
    body = {
        "refusal": refusal_id,
        "project": project,
        "refused": redact_name(operation, empty_fingerprint),
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

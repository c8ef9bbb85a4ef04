"""Leaves of the audit log: what a commit, or a refusal, is accounted for with; and read sets as they are kept."""

import hashlib
import re
import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from counterpoint.guard.capabilities import Grant
from counterpoint.guard.names import is_harmless, is_project, kept, unnamed
from counterpoint.memory.provenance import COMMITS_USED, Memories, Provenance
from counterpoint.memory.rows import MessageRow, Prepared, WriteRow, canonical
from counterpoint.proto import subjects
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Commit, Origin, Ref

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def leaf(
    origin: Origin,
    grant: Grant,
    commit: Commit,
    commit_id: str,
    rows: tuple[WriteRow, ...],
    messages: tuple[MessageRow, ...],
    provenance: Provenance,
    now: datetime,
    redacted: list[list[str]],
    forgets: Mapping[str, Any] | None,
) -> str:
    """The body of a commit's leaf."""
    return canonical(
        {
            **({"erased": forgets} if forgets is not None else {}),
            **({"redacted": redacted} if redacted else {}),
            "commit": commit_id,
            "service": grant.audience,
            "message": origin.message_id,
            "step": commit.step,
            "principal": origin.principal,
            "task": origin.task_id,
            "writes": [[row.store, row.id, row.expect + 1, row.sha256.hex(), row.stamps] for row in rows],
            "messages": [[m.id, m.type, hashlib.sha256(m.body.encode()).hexdigest(), m.stamps] for m in messages],
            "reads": sorted([r.store, r.id, r.version] for r in provenance.refs),
            "at": now.isoformat(),
        }
    )


def _ref_key(ref: Ref) -> tuple[str, str, int]:
    return ref.store, ref.id, ref.version


def read_set(
    refs: frozenset[Ref], memories: Memories, cited: frozenset[Ref], quoted: frozenset[Ref], result_of: str | None
) -> str | None:
    """What a commit rests on, as it is kept: each with its score, whether it was cited, quoted as a candidate, shown,
    or only carried by the message, and whether it is of the shared project; and the commit whose result it works on."""
    rows: list[list[Any]] = []
    for ref in sorted(refs | cited | quoted, key=_ref_key):
        named = "cited" if ref in cited else "quoted" if ref in quoted else None
        how = named or ("shown" if ref in memories.scores else "carried")
        rows.append([*_ref_key(ref), memories.scores.get(ref), how, ref in memories.shared])
    if result_of is not None:
        rows.append([COMMITS_USED, result_of, 1, None, "cited", False])
    return canonical(rows) if rows else None


def refusal(caller: str, origin: Origin, what: str, rule: str, needed: str, now: datetime) -> Prepared:
    """The audit leaf of something that was refused, without what is secret in the names that it quotes. What is no id
    of a task is not filed as one, and what is no name of a project under the default one."""
    known = origin.task_id is not None and _ID.fullmatch(origin.task_id) is not None and is_harmless(origin.task_id)
    task = origin.task_id if known else None
    body = {
        "refused": kept(what, unnamed),
        "rule": kept(rule, unnamed),
        "needed": kept(needed, unnamed),
        "service": caller,
        "message": origin.message_id,
        "principal": origin.principal,
        "task": task,
        "at": now.isoformat(),
    }
    return Prepared(
        project=origin.project if is_project(origin.project) else subjects.DEFAULT_PROJECT,
        commit_id=new_id(),
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

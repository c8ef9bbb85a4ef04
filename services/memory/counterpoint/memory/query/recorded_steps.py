"""Recorded steps: commits, and the answers that their deliveries were given, compared with the leaves that attest them.

The answers of a read set have the order and the scores of the items, the records have everything else. So an answer is
the same, byte for byte, if the leaf attests its read set and the leaves of the writers attest the records.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from counterpoint.guard.capabilities import Grant
from counterpoint.guard.policy import Policy
from counterpoint.memory.access import diode
from counterpoint.memory.audit.leaf_body import expanded
from counterpoint.memory.audit.packed_leaf import leaf_text
from counterpoint.memory.query.item_view import item
from counterpoint.memory.record.answers import answers_text
from counterpoint.memory.record.canonical import canonical
from counterpoint.memory.record.message_bodies import whole_body
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.proto.errors import Denied, ErrorCode, Permanent, Problem
from counterpoint.proto.memory import (
    Outgoing,
    QueryPlan,
    QueryResult,
    RecordedAnswer,
    RecordedMessage,
    RecordedStep,
    StepProblem,
    StepRecord,
    Write,
)
from counterpoint.proto.subjects import SHARED_PROJECT

_SQL = load_statements(__package__)
_OF_STEPS = frozenset({"model_calls", "checkpoints", "routes", "judge_memory", "planner_memory"})
"""Stores that a step is rebuilt from, beside those that the caller may read."""

_Key = tuple[str, str, str, int]
"""Project, store, id and version."""


async def recorded(connection: Any, policy: Policy, grant: Grant, query: RecordedStep | RecordedAnswer) -> QueryResult:
    """Answer a query of a recorded step. Raises `Permanent` `not_found`, and `Denied` `label`."""
    row, leaf = await _commit(connection, grant.project, query.commit_id)
    if isinstance(query, RecordedAnswer):
        return await _answer(connection, grant, query, row, leaf)
    report = await _step(connection, policy, grant, row, leaf)
    return QueryResult(tier="record", plan=QueryPlan.AUDIT, took_us=0, report=report.model_dump(mode="json"))


async def _commit(connection: Any, project: str, commit_id: str) -> tuple[Any, dict[str, Any]]:
    row = await connection.fetchrow(_SQL["recorded_commit"], project, _uuid(commit_id))
    if row is None:
        raise _permanent(ErrorCode.NOT_FOUND, "is not a commit of this project")
    body = leaf_text(row["body"], row["packed_leaf"])
    if body is None:
        raise _permanent(ErrorCode.NOT_FOUND, "was erased")
    return {**row, "body": body}, expanded(json.loads(body))


async def _step(connection: Any, policy: Policy, grant: Grant, row: Any, leaf: Mapping[str, Any]) -> StepRecord:
    project, problems = grant.project, list(_of_leaf(row, leaf))
    hashes: dict[_Key, str] = {
        (project, store, record_id, version): sha256
        for store, record_id, version, sha256, *_ in leaf["writes"]
        if store in _OF_STEPS or diode.read(policy, grant, store) is None
    }
    keys = list(hashes)
    versions = await _versions(connection, grant, keys)
    problems += _of_versions(keys, versions, hashes)
    commit = UUID(leaf["commit"])
    sent = {
        str(each["id"]): each for each in await _messages(connection, project, [m[0] for m in leaf["messages"]], commit)
    }
    problems += _of_messages(leaf["messages"], sent)
    inbound = await _messages(connection, project, [leaf["message"]], commit)
    message = inbound[0] if inbound and inbound[0]["body"] != "{}" else None
    if inbound and message is None:
        problems.append(StepProblem(kind="erased", problem=f"message {leaf['message']} was erased"))
    return StepRecord(
        commit_id=leaf["commit"],
        service=leaf["service"],
        step=leaf["step"],
        message_id=leaf["message"],
        project=leaf["project"],
        task_id=leaf["task"],
        fence=leaf["inbox"][1] if "inbox" in leaf else 0,
        at=leaf["at"],
        inbound=message and RecordedMessage(type=message["type"], data=json.loads(message["body"])),
        writes=tuple(_write(key, versions[key]) for key in keys if key in versions),
        messages=tuple(_outgoing(sent[each[0]]) for each in leaf["messages"] if each[0] in sent),
        cancel_timers=leaf.get("cancels", ()),
        answers=tuple(len(request) for request in json.loads(answers_text(row) or "[]")),
        salt=row["salt"].hex(),
        read_set=leaf.get("read_set"),
        problems=tuple(problems),
    )


async def _answer(
    connection: Any, grant: Grant, query: RecordedAnswer, row: Any, leaf: Mapping[str, Any]
) -> QueryResult:
    if problems := list(_of_leaf(row, leaf)):
        report = {"query": "", "problems": [each.model_dump() for each in problems]}
        return QueryResult(tier="record", plan=QueryPlan.AUDIT, took_us=0, report=report)
    requests = json.loads(answers_text(row) or "[]")
    if query.request >= len(requests) or query.number >= len(requests[query.request]):
        raise _permanent(ErrorCode.NOT_FOUND, "has no such answer")
    digest, tier, plan, partial, cursor, complete, names, entries = requests[query.request][query.number]
    reads = json.loads(row["reads"])
    read = [[*each, None, None, 0][:4] for each in entries]
    keys = [_read_key(grant.project, reads[each[0]], shared=bool(each[3])) for each in read]
    versions = await _versions(connection, grant, keys)
    attested = await _attested(connection, grant.project, versions)
    problems = list(_of_versions(keys, versions, attested))
    if not complete:
        which = f"answer {query.number} of request {query.request}"
        problems.append(StepProblem(kind="report", problem=f"{which} is a report, which the record does not have"))
    items = tuple(
        item(versions[key], each[1], _scores(each[2], names))
        for key, each in zip(keys, read, strict=True)
        if key in versions and versions[key]["body"] is not None
    )
    report = {"query": digest, "problems": [each.model_dump() for each in problems]}
    return QueryResult(items=items, tier=tier, plan=plan, took_us=0, next_cursor=cursor, partial=partial, report=report)


def _scores(scores: Sequence[Any] | None, names: Sequence[Sequence[str]]) -> dict[str, float] | None:
    return None if scores is None else dict(zip(names[scores[0]], scores[1:], strict=True))


def _read_key(project: str, read: Sequence[Any], *, shared: bool) -> _Key:
    return SHARED_PROJECT if shared else project, read[0], read[1], read[2]


async def _versions(connection: Any, grant: Grant, keys: Sequence[_Key]) -> dict[_Key, Any]:
    """Return the versions that are in the record. Raises `Denied` if one is above the clearance."""
    columns = ([key[n] for key in keys] for n in range(4))
    rows = await connection.fetch(_SQL["recorded_versions"], *columns) if keys else []
    if any(row["label"] > grant.clearance for row in rows):
        raise Denied(ErrorCode.LABEL, "a clearance for everything that the step has read")
    return {(row["project"], row["store"], row["id"], row["version"]): row for row in rows}


async def _attested(connection: Any, project: str, versions: Mapping[_Key, Any]) -> dict[_Key, str]:
    """Return the hashes of versions according to the leaves of their commits; of the shared project, whose leaves are
    its own, according to the records."""
    commits = {row["commit_id"] for key, row in versions.items() if key[0] == project}
    leaves = await connection.fetch(_SQL["leaves_of_commits"], project, list(commits))
    bodies = [leaf_text(row["body"], row["packed"]) for row in leaves]
    writes = [write for body in bodies if body is not None for write in expanded(json.loads(body))["writes"]]
    if None in bodies:
        # An erasure empties whole leaves; its own leaf has the writes in them that were kept.
        erasures = await connection.fetch(_SQL["leaves_of_erasures"], project)
        writes += [write for row in erasures for write in json.loads(row["body"])["erased"].get("kept", ())]
    hashes = {(project, write[0], write[1], write[2]): write[3] for write in writes}
    return hashes | {key: row["sha256"] for key, row in versions.items() if key[0] != project}


async def _messages(connection: Any, project: str, ids: Iterable[str], commit: UUID) -> list[Any]:
    """Return the messages with these ids; decisions as far as `commit` sent them."""
    known = [found for each in ids if (found := _parsed(each)) is not None]
    rows = await connection.fetch(_SQL["recorded_messages"], project, known, commit)
    return [{**row, "body": whole_body(row)} for row in rows]


def _of_leaf(row: Any, leaf: Mapping[str, Any]) -> Iterator[StepProblem]:
    """Yield the differences of a leaf from its hash, and of a read set from the leaf."""
    content = row["salt"] + (row["previous"] or b"") + row["body"].encode()
    if row["leaf"] is not None and hashlib.sha256(content).digest() != row["leaf"]:
        yield StepProblem(kind="differs", problem="the leaf differs from its hash")
    if "read_set" not in leaf or (row["reads"] is None and row["has_sources"]):
        return  # of an earlier release, which kept read sets for a time
    reads = None if row["reads"] is None else canonical(json.loads(row["reads"]))
    stored = reads and [row["cause"], *(_sha256(text) for text in (reads, answers_text(row)) if text is not None)]
    if stored != leaf["read_set"]:
        yield StepProblem(kind="differs", problem="the read set differs from what the leaf attests")


def _of_versions(
    keys: Iterable[_Key], versions: Mapping[_Key, Any], attested: Mapping[_Key, str]
) -> Iterator[StepProblem]:
    for key in dict.fromkeys(keys):
        name, row = f"{key[1]}/{key[2]} at version {key[3]}", versions.get(key)
        if row is None:
            yield StepProblem(kind="differs", problem=f"{name} is no longer in the record")
        elif row["erased"] is not None:
            yield StepProblem(kind="erased", problem=f"{name} was erased")
        elif _sha256("" if row["body"] is None else canonical(row["body"])) != attested.get(key):
            yield StepProblem(kind="differs", problem=f"{name} differs from what was committed")


def _of_messages(sent: Iterable[Sequence[Any]], rows: Mapping[str, Any]) -> Iterator[StepProblem]:
    for message_id, _, sha256, *_ in sent:
        row = rows.get(message_id)
        if row is None:
            continue  # Retention deletes messages.
        if row["body"] == "{}" and _sha256("{}") != sha256:
            yield StepProblem(kind="erased", problem=f"message {message_id} was erased")
        elif _sha256(row["body"]) != sha256:
            yield StepProblem(kind="differs", problem=f"message {message_id} differs from what was sent")


def _write(key: _Key, row: Any) -> Write:
    return Write(store=key[1], id=key[2], body=row["body"], expect=key[3] - 1, schema_version=row["schema_version"])


def _outgoing(row: Any) -> Outgoing:
    return Outgoing(
        type=row["type"], data=json.loads(row["body"]), task_id=row["task_id"], due_at=row["due_at"], timer=row["timer"]
    )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _parsed(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _uuid(text: str) -> UUID:
    found = _parsed(text)
    if found is None:
        raise _permanent(ErrorCode.NOT_FOUND, "is not the id of a commit")
    return found


def _permanent(code: ErrorCode, problem: str) -> Permanent:
    return Permanent(code, (Problem(field="commit_id", problem=problem),))

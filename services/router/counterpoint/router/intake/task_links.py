"""Links between tasks: the same failure, different failures, or one task."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from counterpoint.client import Memory, put, record, records, send
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.interventions import AmendTask
from counterpoint.proto.links import Link, Relation, RemovedLink, Side, link_id
from counterpoint.proto.memory import Get, Item, List, Outgoing, Write
from counterpoint.proto.tasks import ENDED, Task

STORE = "links"
_PAGE = 200
PARTS_LIMIT = 100
"""Maximum number of tasks merged into one: a reported success of it is theirs too, in the same commit."""


class DeclaredLinks(NamedTuple):
    """The links of a declaration, those that are new or replace another relation, and the writes of all."""

    links: tuple[Link, ...]
    new: tuple[Link, ...]
    writes: tuple[Write, ...]


async def split_writes(
    memory: Memory, task: Task, attempts: Sequence[str], reason: str | None, by: str, by_kind: str
) -> tuple[Write, ...]:
    """Return the writes that declare attempts to be of other failures than a task. Raises `Permanent` `invalid`."""
    others = await sides_of(memory, attempts, field="not_same")
    for number, other in enumerate(others):
        if other.task_id == task.task_id:
            problem = Problem(field=f"not_same[{number}]", problem="is an attempt of this task")
            raise Permanent(ErrorCode.INVALID, (problem,))
    side = side_of(task)
    pairs = [(side, other) for other in others]
    return (await link_writes(memory, pairs, "different", reason, by, by_kind)).writes


async def sides_of(memory: Memory, ids: Sequence[str], field: str = "tasks") -> list[Side]:
    """Return the sides that some ids of tasks or attempts stand for. Raises `Permanent` `invalid`."""
    if len(set(ids)) < len(ids):
        raise Permanent(ErrorCode.INVALID, (Problem(field=field, problem="contains a duplicate"),))
    tasks = {item.id: item for item in await memory.get_all("tasks", ids)}
    attempts = {item.id: item for item in await memory.get_all("attempts", ids)}
    sides, problems = list[Side](), list[Problem]()
    for number, each in enumerate(ids):
        if each in attempts:
            sides.append(side_of_attempt(record(attempts[each], Attempt)))
        elif each in tasks:
            sides.append(side_of(record(tasks[each], Task)))
        else:
            problem = f"{each} is neither a task nor an attempt of project {memory.project}"
            problems.append(Problem(field=f"{field}[{number}]", problem=problem))
    if problems:
        raise Permanent(ErrorCode.INVALID, tuple(problems))
    if field == "tasks" and len({side.task_id for side in sides}) < len(sides):
        raise Permanent(ErrorCode.INVALID, (Problem(field=field, problem="names a task twice"),))
    return sides


def side_of(task: Task) -> Side:
    """Return a task as one side of a pair."""
    return Side(
        task_id=task.task_id,
        error_signature=task.error_signature,
        error_message=task.error_message,
        job=task.target.job if task.target else None,
    )


def side_of_attempt(attempt: Attempt) -> Side:
    """Return the task of an attempt as one side of a pair."""
    return Side(
        task_id=attempt.task_id,
        error_signature=attempt.error_signature,
        error_message=attempt.error_message,
        job=attempt.job,
        attempt_id=attempt.attempt_id,
    )


async def parts_of(memory: Memory, task_id: str) -> tuple[str, ...]:
    """Return the tasks that are merged into a task, directly or by way of another."""
    parts, frontier = dict[str, None](), [task_id]
    while frontier:
        for link in await _merges(memory, frontier.pop()):
            parent, part = (side.task_id for side in link.pair)
            if part not in parts and part != task_id and (parent in parts or parent == task_id):
                parts[part] = None
                frontier.append(part)
    return tuple(parts)


async def parts_of_open_tasks(memory: Memory, task_ids: Sequence[str]) -> set[str]:
    """Return those of some tasks that are handled as parts of others which have not ended."""
    if not task_ids:
        return set()
    query = List(store=STORE, where={"relation": "merged"}, limit=_PAGE)
    pairs = [link.pair async for page in memory.pages(query) for link in records(page.items, Link)]
    parents = sorted({parent.task_id for parent, part in pairs if part.task_id in task_ids})
    found = records(await memory.get_all("tasks", parents), Task)
    ended = {task.task_id for task in found if task.state in ENDED}
    return {part.task_id for parent, part in pairs if part.task_id in task_ids and parent.task_id not in ended}


async def _merges(memory: Memory, task_id: str) -> list[Link]:
    query = List(store=STORE, where={"relation": "merged", "pair": [{"task_id": task_id}]}, limit=_PAGE)
    return [link async for page in memory.pages(query) for link in records(page.items, Link)]


async def check_not_merged(memory: Memory, side: Side) -> None:
    """Raise `Permanent` `invalid` for a task that is merged into another."""
    for link in await _merges(memory, side.task_id):
        parent, part = link.pair
        if part.task_id == side.task_id:
            problem = f"{side.task_id} is merged into {parent.task_id}: give that one as the first task"
            raise Permanent(ErrorCode.INVALID, (Problem(field="tasks[0]", problem=problem),))


async def check_parts(memory: Memory, sides: Sequence[Side]) -> None:
    """Raise `Permanent` `invalid` if a merge would give its first task more than `PARTS_LIMIT` parts."""
    parent, *others = sides
    parts = set(await parts_of(memory, parent.task_id))
    for other in others:
        parts |= {other.task_id, *await parts_of(memory, other.task_id)}
    if len(parts) > PARTS_LIMIT:
        problem = f"{parent.task_id} would have {len(parts)} merged tasks; the limit is {PARTS_LIMIT}"
        raise Permanent(ErrorCode.INVALID, (Problem(field="tasks", problem=problem),))


async def link_writes(
    memory: Memory,
    pairs: Iterable[tuple[Side, Side]],
    relation: Relation,
    reason: str | None,
    by: str,
    by_kind: str,
) -> DeclaredLinks:
    """Return the links of some pairs. They replace earlier ones."""
    links, new, writes = list[Link](), list[Link](), list[Write]()
    keyed_pairs = [(link_id(one.task_id, other.task_id), one, other) for one, other in pairs]
    existing_links: list[Item | None] = []
    for found in await memory.query(*(Get(store=STORE, id=each) for each, _, _ in keyed_pairs)):
        existing_links.append(found.items[0] if found.items else None)
    for (each, one, other), existing in zip(keyed_pairs, existing_links, strict=True):
        link = Link(
            link_id=each,
            project=memory.project,
            relation=relation,
            pair=(one, other),
            reason=reason,
            by=by,
            by_kind=by_kind,
            at=memory.now,
        )
        links.append(link)
        writes.append(put(STORE, each, link, existing=existing))
        if existing is None or existing.body.get("relation") != relation:
            new.append(link)
    return DeclaredLinks(tuple(links), tuple(new), tuple(writes))


async def link_messages(
    memory: Memory, links: Sequence[Link], relation: Relation, by: str, by_kind: str
) -> tuple[Outgoing, ...]:
    """Return the messages about new links to the open tasks among their sides, none about a merge."""
    reason = "linked to the same failure" if relation == "same" else "split from a different failure"
    return tuple(
        send(AmendTask(task_id=each, by=by, by_kind=by_kind, reason=reason, links=tuple(link.link_id for link in its)))
        for each, its in (await _by_open_task(memory, links, relation)).items()
    )


async def removal_messages(
    memory: Memory, links: Sequence[Link], relation: Relation, by: str, by_kind: str
) -> tuple[Outgoing, ...]:
    """Return the messages about removed links to the open tasks among their sides, none about a merge."""
    reason = "no longer linked to that failure" if relation == "same" else "no longer split from that failure"
    messages = list[Outgoing]()
    for each, its in (await _by_open_task(memory, links, relation)).items():
        others = (link.other(each) for link in its)
        removed = (RemovedLink(relation=relation, task_id=it.task_id, attempt_id=it.attempt_id) for it in others)
        messages.append(
            send(AmendTask(task_id=each, by=by, by_kind=by_kind, reason=reason, removed_links=tuple(removed)))
        )
    return tuple(messages)


async def _by_open_task(memory: Memory, links: Sequence[Link], relation: Relation) -> dict[str, list[Link]]:
    """Return the links of each open task among their sides."""
    if relation == "merged":
        return {}
    by_task = dict[str, list[Link]]()
    for link in links:
        for side in link.pair:
            by_task.setdefault(side.task_id, []).append(link)
    tasks = records(await memory.get_all("tasks", list(by_task)), Task)
    return {task.task_id: by_task[task.task_id] for task in tasks if task.state not in ENDED}

"""Declared links: the waiting tasks whose card changes when a person links or splits failures (docs/incidents.md)."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from counterpoint.client import Memory, records
from counterpoint.manager.task_history import workflow_state_of
from counterpoint.manager.workflow import AWAITS_OUTCOME, ESCALATED
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.interventions import AmendTask
from counterpoint.proto.links import Link
from counterpoint.proto.memory import Get, List
from counterpoint.proto.tasks import Task

STORE = "links"
_ATTEMPTS = 50
"""Maximum number of attempts of a task that are compared with a card."""
_HELPED = frozenset({"succeeded", "partial"})
_REMOVAL_MEANS = {"same": "different", "different": "same"}
"""The relation whose effect on a card is that of removing another one."""


class LinkChange(NamedTuple):
    """The relation of a task to another one has become `relation`. `attempt_id`: the attempt that was named."""

    relation: str
    task_id: str
    attempt_id: str | None


async def changes_card(memory: Memory, task: Task, message: AmendTask) -> bool:
    """Return whether any of the new or removed links of a message changes the card of a task."""
    found = await memory.query(*(Get(store=STORE, id=each) for each in message.links))
    links = records((item for result in found for item in result.items), Link)
    changes = list(_changes(task, message, links))
    lists = (List(store="attempts", where={"task_id": each.task_id}, limit=_ATTEMPTS) for each in changes)
    attempts = [records(result.items, Attempt) for result in await memory.query(*lists)]
    return any(is_affected(task, change, others) for change, others in zip(changes, attempts, strict=True))


def is_affected(task: Task, change: LinkChange, others: Sequence[Attempt]) -> bool:
    """Return whether a change changes the card of a waiting task. `others` are the attempts at the other task.

    A split does if an escalated task shows an attempt of the other one, or if an open proposal cites one. A link does
    if the task is escalated and an act helped the other one. Any other open proposal stays, since somebody may be
    carrying it out.
    """
    state = workflow_state_of(task)
    match change.relation:
        case "different":
            ids = {each.attempt_id for each in others} | {change.attempt_id}
            basis = _cited(task) if state == AWAITS_OUTCOME else _shown(task) if state in ESCALATED else ()
            return not ids.isdisjoint(basis)
        case "same":
            return state in ESCALATED and any(each.outcome in _HELPED for each in others)
        case _:
            return False


def _changes(task: Task, message: AmendTask, links: Sequence[Link]) -> Iterator[LinkChange]:
    for link in links:
        if task.task_id in {side.task_id for side in link.pair}:
            other = link.other(task.task_id)
            yield LinkChange(link.relation, other.task_id, other.attempt_id)
    for removed in message.removed_links:
        yield LinkChange(_REMOVAL_MEANS.get(removed.relation, removed.relation), removed.task_id, removed.attempt_id)


def _cited(task: Task) -> frozenset[str]:
    citations = task.findings.citations if task.findings else ()
    return frozenset(each.id for each in citations if each.store == "attempts")


def _shown(task: Task) -> frozenset[str]:
    return _cited(task) | {each.id for each in (task.findings.similar_attempts if task.findings else ())}

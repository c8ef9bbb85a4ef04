"""Declared links: the waiting tasks whose card changes when a person links or splits failures (docs/incidents.md)."""

from collections.abc import Sequence

from counterpoint.client import Memory, records
from counterpoint.manager.task_history import workflow_state_of
from counterpoint.manager.workflow import AWAITS_OUTCOME, ESCALATED
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.links import Link
from counterpoint.proto.memory import Get, List
from counterpoint.proto.tasks import Task

STORE = "links"
_ATTEMPTS = 50
"""Maximum number of attempts of a task that are compared with a card."""
_HELPED = frozenset({"succeeded", "partial"})


async def changes_card(memory: Memory, task: Task, link_ids: Sequence[str]) -> bool:
    """Return whether any of these links changes the card of a task."""
    found = await memory.query(*(Get(store=STORE, id=each) for each in link_ids))
    links = [
        link
        for link in records((item for result in found for item in result.items), Link)
        if task.task_id in {side.task_id for side in link.pair}
    ]
    if not links:
        return False
    lists = (
        List(store="attempts", where={"task_id": link.other(task.task_id).task_id}, limit=_ATTEMPTS) for link in links
    )
    attempts = [records(result.items, Attempt) for result in await memory.query(*lists)]
    return any(is_affected(task, link, others) for link, others in zip(links, attempts, strict=True))


def is_affected(task: Task, link: Link, others: Sequence[Attempt]) -> bool:
    """Return whether a link changes the card of a waiting task. `others` are the attempts at the other task.

    A split does if an escalated task shows an attempt of the other one, or if an open proposal cites one. A link does
    if the task is escalated and an act helped the other one. Any other open proposal stays, since somebody may be
    carrying it out.
    """
    state, other = workflow_state_of(task), link.other(task.task_id)
    match link.relation:
        case "different":
            ids = {each.attempt_id for each in others} | {other.attempt_id}
            basis = _cited(task) if state == AWAITS_OUTCOME else _shown(task) if state in ESCALATED else ()
            return not ids.isdisjoint(basis)
        case "same":
            return state in ESCALATED and any(each.outcome in _HELPED for each in others)
        case _:
            return False


def _cited(task: Task) -> frozenset[str]:
    citations = task.findings.citations if task.findings else ()
    return frozenset(each.id for each in citations if each.store == "attempts")


def _shown(task: Task) -> frozenset[str]:
    return _cited(task) | {each.id for each in (task.findings.similar_attempts if task.findings else ())}

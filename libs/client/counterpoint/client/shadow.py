"""Proposals in shadow mode, which were not shown, compared with the fixes of their incidents."""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime

from counterpoint.client.memory import Memory
from counterpoint.client.readable import records
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.memory import List
from counterpoint.proto.messages import Id, Shape, Time
from counterpoint.proto.tasks import JobRef

SAME_ACT_SHARE = 0.6
"""Minimum share of the shorter text's words that two acts have in common if they are the same."""
_PAGE, _TASKS = 200, 50
_WORD_CHARS = 4


class ShadowProposal(Shape):
    """A proposal in shadow mode. `fixed` is the fix that a person reported, `right` whether it is the same act."""

    task_id: Id
    at: Time
    proposed: str
    confidence: float | None = None
    fixed: str | None = None
    right: bool | None = None


class ShadowCounts(Shape):
    """Counts of proposals in shadow mode. `share`: the part of the explained ones that was right."""

    proposed: int
    explained: int
    right: int
    share: float | None = None


async def shadow_proposals(
    memory: Memory, *, job: JobRef | None = None, since: datetime | None = None
) -> tuple[ShadowProposal, ...]:
    """Return the proposals in shadow mode, newest first: of one job and since a time, if given."""
    shadowed = List(store="attempts", where={"shadow": True}, limit=_PAGE)
    attempts = [attempt async for page in memory.pages(shadowed) for attempt in records(page.items, Attempt)]
    selected = [each for each in attempts if job in (None, each.job) and (since is None or each.at >= since)]
    by_task = await _attempts_by_task(memory, [each.task_id for each in selected])
    return tuple(compare_with_fix(each, by_task.get(each.task_id, ())) for each in selected)


def count_proposals(items: Iterable[ShadowProposal]) -> ShadowCounts:
    """Count proposals in shadow mode."""
    proposals = tuple(items)
    explained = [item for item in proposals if item.right is not None]
    right = sum(item.right is True for item in explained)
    share = round(right / len(explained), 3) if explained else None
    return ShadowCounts(proposed=len(proposals), explained=len(explained), right=right, share=share)


def compare_with_fix(shadow: Attempt, attempts: Iterable[Attempt]) -> ShadowProposal:
    """Return a proposal with the fix of its incident, if a person reported one among its `attempts`."""
    credited = shadow.outcome == "succeeded" and shadow.evidence == "reported"
    fixes = [each.tried for each in attempts if not each.shadow and each.outcome == "succeeded" and each.tried]
    return ShadowProposal(
        task_id=shadow.task_id,
        at=shadow.at,
        proposed=shadow.tried,
        confidence=shadow.confidence,
        fixed=fixes[0] if fixes else None,
        right=True if credited else is_same_act(shadow.tried, fixes[0]) if fixes else None,
    )


def is_same_act(first: str, second: str) -> bool:
    """Return whether most words of the shorter text are in the longer."""
    shorter, longer = sorted((_words(first), _words(second)), key=len)
    return bool(shorter) and len(shorter & longer) >= SAME_ACT_SHARE * len(shorter)


def _words(text: str) -> frozenset[str]:
    words = re.findall(r"\w+", text.casefold())
    return frozenset(word for word in words if len(word) >= _WORD_CHARS or word.isdigit()) or frozenset(words)


async def _attempts_by_task(memory: Memory, tasks: Sequence[str]) -> dict[str, list[Attempt]]:
    by_task: dict[str, list[Attempt]] = {}
    for start in range(0, len(tasks), _TASKS):
        batch = tasks[start : start + _TASKS]
        answers = await memory.query(*(List(store="attempts", where={"task_id": each}, limit=20) for each in batch))
        by_task |= {task: records(answer.items, Attempt) for task, answer in zip(batch, answers, strict=True)}
    return by_task

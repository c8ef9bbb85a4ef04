"""Proposals in shadow, which nobody was shown, beside what fixed their incidents."""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime

from counterpoint.client.memory import Memory
from counterpoint.client.readable import records
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.memory import List
from counterpoint.proto.messages import Id, Shape, Time
from counterpoint.proto.tasks import JobRef

AGREED = 0.6
"""Share of the words of the shorter text that both acts have, from which they are taken for one."""
_PAGE, _TASKS = 200, 50
_WORD_CHARS = 4


class Unshown(Shape):
    """A proposal that nobody was shown. `fixed` is what a person reported, `right` whether it is the same act."""

    task_id: Id
    at: Time
    proposed: str
    confidence: float | None = None
    fixed: str | None = None
    right: bool | None = None


class ShadowCounts(Shape):
    """Counts of proposals in shadow. `share`: of those whose incident was explained, the part that was right."""

    proposed: int
    explained: int
    right: int
    share: float | None = None


async def unshown_proposals(
    memory: Memory, *, job: JobRef | None = None, since: datetime | None = None
) -> tuple[Unshown, ...]:
    """The proposals in shadow, newest first: of one job where it is given, and since a moment."""
    shadowed = List(store="attempts", where={"shadow": True}, limit=_PAGE)
    kept = [one async for some in memory.pages(shadowed) for one in records(some.items, Attempt)]
    kept = [one for one in kept if job in (None, one.job) and (since is None or one.at >= since)]
    beside = await _attempts(memory, [one.task_id for one in kept])
    return tuple(judged(one, beside.get(one.task_id, ())) for one in kept)


def counted(items: Iterable[Unshown]) -> ShadowCounts:
    """Count proposals in shadow."""
    some = tuple(items)
    known = [item for item in some if item.right is not None]
    right = sum(item.right is True for item in known)
    share = round(right / len(known), 3) if known else None
    return ShadowCounts(proposed=len(some), explained=len(known), right=right, share=share)


def judged(unshown: Attempt, tried: Iterable[Attempt]) -> Unshown:
    """Return a proposal beside what fixed its incident, as far as a person has said so."""
    credited = unshown.outcome == "succeeded" and unshown.evidence == "reported"
    fixes = [one.tried for one in tried if not one.shadow and one.outcome == "succeeded" and one.tried]
    return Unshown(
        task_id=unshown.task_id,
        at=unshown.at,
        proposed=unshown.tried,
        confidence=unshown.confidence,
        fixed=fixes[0] if fixes else None,
        right=True if credited else is_same_act(unshown.tried, fixes[0]) if fixes else None,
    )


def is_same_act(one: str, other: str) -> bool:
    """Return whether most words of the shorter text are in the longer."""
    few, many = sorted((_words(one), _words(other)), key=len)
    return bool(few) and len(few & many) >= AGREED * len(few)


def _words(text: str) -> frozenset[str]:
    found = re.findall(r"\w+", text.casefold())
    return frozenset(word for word in found if len(word) >= _WORD_CHARS or word.isdigit()) or frozenset(found)


async def _attempts(memory: Memory, tasks: Sequence[str]) -> dict[str, list[Attempt]]:
    found: dict[str, list[Attempt]] = {}
    for start in range(0, len(tasks), _TASKS):
        some = tasks[start : start + _TASKS]
        answers = await memory.query(*(List(store="attempts", where={"task_id": each}, limit=20) for each in some))
        found |= {task: records(answer.items, Attempt) for task, answer in zip(some, answers, strict=True)}
    return found

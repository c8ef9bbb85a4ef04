"""The report of the shadow: the proposals that nobody was shown, beside what fixed the incidents."""

import re
from collections.abc import Iterable, Sequence
from datetime import timedelta

from fastapi import APIRouter, Response

from counterpoint.proto.attempts import Attempt
from counterpoint.proto.incident_settings import SHADOW_REPORT_S, STORE, StoredIncidentSettings
from counterpoint.proto.memory import List
from counterpoint.proto.messages import Id, Shape, Time
from counterpoint.recall import Memory, record
from counterpoint.router.bodies import reply
from counterpoint.router.desk import Asking

router = APIRouter(prefix="/v1/shadow", tags=["operate"])

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


class ShadowReport(Shape):
    """Proposals in shadow, newest first. `share`: of those whose incident was explained, the part that was right.

    `due_at`: the end of the first week. Acts are compared by their words: read the pairs before relying on the share.
    """

    since: Time | None = None
    due_at: Time | None = None
    due: bool = False
    proposed: int
    explained: int
    right: int
    share: float | None = None
    items: tuple[Unshown, ...]


@router.get("", responses={200: {"model": ShadowReport}}, response_model=None)
async def shadow(asked: Asking) -> Response:
    """The proposals of the incidents in shadow, and how often they would have been right."""
    asked.needs("read")
    memory = asked.memory()
    settings, shadowed = List(store=STORE, limit=_PAGE), List(store="attempts", where={"shadow": True}, limit=_PAGE)
    held = [record(item, StoredIncidentSettings) async for some in memory.pages(settings) for item in some.items]
    unshown = [record(item, Attempt) async for some in memory.pages(shadowed) for item in some.items]
    beside = await _attempts(memory, [one.task_id for one in unshown])
    starts = [one.shadow_since for one in held if one.shadow_since]
    items = tuple(judged(one, beside.get(one.task_id, ())) for one in unshown)
    since = min(starts, default=None)
    due_at = since + timedelta(seconds=SHADOW_REPORT_S) if since else None
    known = [item for item in items if item.right is not None]
    right = sum(item.right is True for item in known)
    report = ShadowReport(
        since=since,
        due_at=due_at,
        due=due_at is not None and due_at <= memory.now,
        proposed=len(items),
        explained=len(known),
        right=right,
        share=round(right / len(known), 3) if known else None,
        items=items,
    )
    return reply(report)


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
        found |= {
            task: [record(item, Attempt) for item in answer.items] for task, answer in zip(some, answers, strict=True)
        }
    return found

"""The digest of a session: what its tasks asked, tried, decided and learned, within a budget of tokens. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from textwrap import shorten

from counterpoint.proto.attempts import SUPERSEDED, Attempt
from counterpoint.proto.messages import Id, Shape, Time
from counterpoint.proto.sessions import SessionRecord
from counterpoint.proto.tasks import ENDED, Need, Task
from counterpoint.proto.titles import title_of

TOKEN_CHARS = 4
"""Characters of a token, on average of English text."""
_RESULT_CHARS, _TRIED_CHARS = 600, 300
_OUTCOMES = frozenset({"succeeded", "failed", "partial"})

_QUOTE_MARK, _REFERENCE = re.compile(r"^> ?|(?<=\S) (?:\[\d{1,3}\])+(?=:?\s*$)"), re.compile(r"\[\d{1,3}\] \S")


class TriedAct(Shape):
    """An act that was tried in a task, and its outcome."""

    tried: str
    outcome: str
    note: str | None = None
    by: str


class SessionTask(Shape):
    """A task of a session. In a short entry only the first six fields are set.

    `decided` is the result or the proposal, `instruction` that of an override, `needs` what the task waits for.
    """

    task_id: Id
    at: Time
    kind: str
    title: str
    state: str
    resolution: str | None = None
    decided: str | None = None
    tried: tuple[TriedAct, ...] = ()
    instruction: str | None = None
    constraints: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()


class SessionDigest(Shape):
    """A session: open tasks first, then the newest. `learned`: acts that worked, the newest first.

    `omitted`: tasks without an entry, for want of tokens. `tokens` estimates the size of the text. `compacted`: what
    the tasks before the latest came to, in the words of the model `compacted_by`, or of `rules`.
    """

    session_id: Id
    project: str
    opened_at: Time
    continued_at: Time
    learned: tuple[str, ...] = ()
    tasks: tuple[SessionTask, ...] = ()
    omitted: int = 0
    tokens: int = 0
    text: str = ""
    compacted: str | None = None
    compacted_by: str | None = None


def session_digest(
    session: SessionRecord, tasks: Sequence[Task], attempts: Iterable[Attempt], budget_tokens: int
) -> SessionDigest:
    """Return the digest of a session within a budget.

    Tasks are shortened from the end of the order to their first line, then omitted. A long result or act is cut.
    """
    of_task: dict[str, list[Attempt]] = {}
    for attempt in sorted(attempts, key=lambda one: one.attempt):
        of_task.setdefault(attempt.task_id, []).append(attempt)
    ordered = sorted(tasks, key=_recency, reverse=True)
    entries = [_entry(task, of_task.get(task.task_id, ())) for task in ordered]
    learned = _learned(ordered, of_task)
    head = SessionDigest(
        session_id=session.session_id,
        project=session.project,
        opened_at=session.opened_at,
        continued_at=session.continued_at,
    )
    budget = budget_tokens * TOKEN_CHARS
    kept = [entry.model_copy(update=_SHORT) for entry in entries]
    while kept and len(_text(kept, (), len(entries))) > budget:
        kept.pop()
    for count in range(len(learned), -1, -1):
        if len(_text(kept, learned[:count], len(entries))) <= budget:
            learned = learned[:count]
            break
    for place in range(len(kept)):
        longer = [*kept[:place], entries[place], *kept[place + 1 :]]
        if len(_text(longer, learned, len(entries))) <= budget:
            kept = longer
    text = _text(kept, learned, len(entries))
    return head.model_copy(
        update={
            "learned": learned,
            "tasks": tuple(kept),
            "omitted": len(entries) - len(kept),
            "tokens": -(-len(text) // TOKEN_CHARS),
            "text": text,
        }
    )


_SHORT: Mapping[str, object] = {"decided": None, "tried": (), "instruction": None, "constraints": (), "needs": ()}


def _recency(task: Task) -> tuple[bool, datetime]:
    return task.state not in ENDED, task.ended_at or task.submitted_at


def _entry(task: Task, attempts: Iterable[Attempt]) -> SessionTask:
    job = task.target.job.name if task.target and task.target.job else None
    override = task.override
    shown = [one for one in attempts if not one.shadow and one.outcome != SUPERSEDED]
    return SessionTask(
        task_id=task.task_id,
        at=task.ended_at or task.submitted_at,
        kind=task.kind,
        title=title_of(task.description, task.title, task.error_message, job),
        state=f"waits for {task.waiting_for}" if task.waiting_for else task.state,
        resolution=task.resolution,
        decided=_cut(_unquoted(task.result or task.proposal or ""), _RESULT_CHARS),
        tried=tuple(
            TriedAct(tried=_act(one), outcome=one.outcome, note=_cut(one.note, _TRIED_CHARS), by=one.by)
            for one in shown
            if one.outcome in _OUTCOMES
        ),
        instruction=_cut(override.instruction, _TRIED_CHARS) if override else None,
        constraints=tuple(each.text for each in task.constraints),
        needs=task.escalation.needs if task.escalation else task.needs,
    )


def _learned(tasks: Iterable[Task], attempts: Mapping[str, Sequence[Attempt]]) -> tuple[str, ...]:
    """Return the acts that worked, without repetition."""
    worked = [
        _act(one)
        for task in tasks
        for one in attempts.get(task.task_id, ())
        if one.outcome == "succeeded" and one.tried
    ]
    return tuple(dict.fromkeys(worked))


def _act(attempt: Attempt) -> str:
    return _cut(attempt.summary or attempt.tried, _TRIED_CHARS) or ""


def _unquoted(markdown: str) -> str:
    """Return a text without the marks of its quotes and without its references."""
    lines = (_QUOTE_MARK.sub("", line) for line in markdown.split("\n") if not _REFERENCE.match(line))
    return "\n".join(lines)


def _cut(text: str | None, limit: int) -> str | None:
    """Return a text on one line, cut after a word."""
    return shorten(text, limit, placeholder=" …") if text else None


def _text(tasks: Sequence[SessionTask], learned: Sequence[str], number: int) -> str:
    """Return a digest as markdown."""
    lines = [f"Worked: {act}" for act in learned]
    for task in tasks:
        resolution = f" ({task.resolution})" if task.resolution else ""
        lines.append(f"- {task.at:%Y-%m-%d %H:%M} {task.kind} {task.task_id}: {task.title}; {task.state}{resolution}")
        lines += [f"  decided: {task.decided}"] if task.decided else []
        lines += [f"  tried: {act.tried}; {act.outcome}" + (f": {act.note}" if act.note else "") for act in task.tried]
        lines += [f"  instruction: {task.instruction}"] if task.instruction else []
        lines += [f"  constraint: {each}" for each in task.constraints]
        lines += [f"  needs: {need.what}" for need in task.needs]
    if omitted := number - len(tasks):
        lines.append(f"and {omitted} more")
    return "\n".join(lines)

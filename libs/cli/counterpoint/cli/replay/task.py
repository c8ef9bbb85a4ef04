"""Replay of one task: its steps are checked, run again without what is left out, and compared."""

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

from counterpoint.cli.replay.compare import DecisionText, Difference, decisions, first_difference
from counterpoint.cli.replay.processes import MODULES, ReplayProcesses
from counterpoint.client.replay import GivenAnswer, RecordedDelivery
from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.memory import Item, StepRecord
from counterpoint.proto.messages import Shape, Time

if TYPE_CHECKING:
    from counterpoint.cli.api import ApiClient

Verdict = Literal["same", "different", "not replayed", "follows", "broken"]
_EMPTY = hashlib.sha256(b"[]").hexdigest()
_WHOLE = "done"
"""Name of the only step of a delivery that makes one commit."""


class FetchedStep(Shape):
    """A step as the API returns it."""

    leaf: int
    record: StepRecord | None = None
    requests: tuple[tuple[GivenAnswer, ...], ...] = ()
    problems: tuple[str, ...] = ()


class ContextItem(Shape):
    """An item that a step was given."""

    store: str
    id: str
    version: int
    score: float | None = None
    without: bool = False


class StepReport(Shape):
    """The replay of a step. `why` says why it is not replayed, or what is broken; `context` is what it was given."""

    leaf: int
    service: str = ""
    step: str = ""
    commit_id: str = ""
    at: Time | None = None
    verdict: Verdict
    why: tuple[str, ...] = ()
    recorded: tuple[DecisionText, ...] = ()
    replayed: tuple[DecisionText, ...] = ()
    difference: Difference | None = None
    context: tuple[ContextItem, ...] = ()


class TaskReport(Shape):
    """The replay of a task. `contexts` of its steps were rebuilt, and equal what the audit log attests."""

    task_id: str
    project: str
    verdict: Verdict
    contexts: int
    without: str | None = None
    left_out: int = 0
    policy: str | None = None
    steps: tuple[StepReport, ...]


def replay_task(
    api: "ApiClient", task_id: str, project: str | None, processes: ReplayProcesses, *, without: str | None = None
) -> TaskReport:
    """Replay a task. With `without`, its items are left out of what the steps were given. After the first different
    step the others are not replayed: they rest on what it decided."""
    reports: list[StepReport] = []
    steps = _fetch(api, task_id, project)
    for _, delivery in groupby(steps, key=lambda step: step.record and (step.record.service, step.record.message_id)):
        reports += _replayed(list(delivery), processes, without, follows=any(r.verdict == "different" for r in reports))
    verdicts = {each.verdict for each in reports}
    ranked: tuple[Verdict, ...] = ("broken", "different", "same")
    return TaskReport(
        task_id=task_id,
        project=next((step.record.project for step in steps if step.record), project or ""),
        verdict=next((each for each in ranked if each in verdicts), "not replayed"),
        contexts=sum(not step.problems and _has_context(step.record) for step in steps),
        without=without,
        left_out=sum(item.without for report in reports for item in report.context),
        steps=tuple(reports),
    )


def _fetch(api: "ApiClient", task_id: str, project: str | None) -> list[FetchedStep]:
    steps: list[FetchedStep] = []
    cursor = None
    while True:
        page = api.post(f"/v1/tasks/{task_id}/replay", {}, project=project, cursor=cursor)
        steps += (FetchedStep.model_validate(each) for each in page["items"])
        cursor = page["next_cursor"]
        if cursor is None:
            return steps


def _replayed(
    steps: Sequence[FetchedStep], processes: ReplayProcesses, without: str | None, *, follows: bool
) -> list[StepReport]:
    """Return the reports on the steps of one delivery."""
    last = steps[-1]
    context = _context(last.requests, without)
    if problems := [problem for step in steps for problem in step.problems]:
        return [_report(step, "broken", tuple(problems), context) for step in steps]
    record = last.record
    assert record is not None, "a step without a record has a problem"
    if why := _cannot_run(steps, record):
        return [_report(step, "not replayed", (why,), context) for step in steps]
    if follows:
        return [_report(last, "follows", ("rests on the different step above",), context)]
    given = tuple(tuple(_without(answer, without) for answer in request) for request in last.requests)
    result = processes.run(_delivery(record, given))
    difference = first_difference(record, result.commits)
    if result.stopped is not None:
        difference = Difference(at="run", recorded="committed", replayed=result.stopped)
    report = _report(last, "different" if difference else "same", (), context)
    made = tuple(each for commit in result.commits for each in decisions(commit.messages))
    return [report.model_copy(update={"difference": difference, "replayed": made})]


def _cannot_run(steps: Sequence[FetchedStep], record: StepRecord) -> str | None:
    """Return the reason why a delivery does not run again, None if it does."""
    if record.service not in MODULES:
        return f"decisions of {record.service} do not run again"
    if record.inbound is None:
        return "its inbound message is not in the log"
    if not _has_context(record):
        return "an earlier release committed it, which did not record the answers"
    if record.step != _WHOLE or len(steps) > 1:
        return "took several steps: a model or the web took part, or a step was refused"
    return None


def _has_context(record: StepRecord | None) -> bool:
    """Whether the answers of a step were recorded, or there were none."""
    return record is not None and (record.read_set is None or len(record.read_set) > 2 or record.read_set[1] == _EMPTY)


def _delivery(record: StepRecord, requests: tuple[tuple[GivenAnswer, ...], ...]) -> RecordedDelivery:
    assert record.inbound is not None
    return RecordedDelivery(
        service=record.service,
        message_id=record.message_id,
        fence=record.fence,
        project=record.project,
        task_id=record.task_id,
        now=_time(record),
        inbound=record.inbound,
        salt=record.salt,
        requests=requests,
    )


def _time(record: StepRecord) -> datetime:
    """Return the time by which a step decided: that of its decision or action, else that of its commit."""
    texts = [each.data["made_at"] for each in record.messages if each.type == DecisionMade.TYPE]
    texts += [each.body["at"] for each in record.writes if each.store == "actions" and each.body]
    return datetime.fromisoformat(texts[0]) if texts else record.at


def _report(step: FetchedStep, verdict: Verdict, why: tuple[str, ...], context: tuple[ContextItem, ...]) -> StepReport:
    record = step.record
    if record is None:
        return StepReport(leaf=step.leaf, verdict=verdict, why=why)
    return StepReport(
        leaf=step.leaf,
        service=record.service,
        step=record.step,
        commit_id=record.commit_id,
        at=record.at,
        verdict=verdict,
        why=why,
        recorded=decisions(record.messages),
        context=context,
    )


def _context(requests: Iterable[Iterable[GivenAnswer]], without: str | None) -> tuple[ContextItem, ...]:
    items = [item for request in requests for answer in request for item in answer.result.items]
    return tuple(
        ContextItem(
            store=item.store, id=item.id, version=item.version, score=item.score, without=is_item(item, without)
        )
        for item in items
    )


def _without(answer: GivenAnswer, without: str | None) -> GivenAnswer:
    items = tuple(item for item in answer.result.items if not is_item(item, without))
    return answer.model_copy(update={"result": answer.result.model_copy(update={"items": items})})


def is_item(item: Item, name: str | None) -> bool:
    """Whether an item is that of a name, STORE/ID or STORE/ID@VERSION, or a chunk of a document: by its id or its
    source."""
    if name is None:
        return False
    own = f"{item.store}/{item.id}"
    names: set[Any] = {own, f"{own}@{item.version}"}
    if item.store == "chunks":
        names |= {f"documents/{item.id.rpartition('-')[0]}", item.body.get("source")}
    if item.store == "documents":
        names.add(item.body.get("source"))
    return name in names

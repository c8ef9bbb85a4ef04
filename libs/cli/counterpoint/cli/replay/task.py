"""Replay of one task: its steps are checked, run again without what is left out, and compared."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from counterpoint.cli.errors import CommandError
from counterpoint.cli.replay.compare import DecisionText, Difference, decisions, first_difference
from counterpoint.cli.replay.other_model import ModelReplay, ModelReport, ledger_costs
from counterpoint.cli.replay.processes import MODULES, ReplayProcesses
from counterpoint.client.replay import GivenAnswer, RecordedCall, RecordedDelivery, ReplayedDelivery
from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.memory import Item, StepProblem, StepRecord
from counterpoint.proto.messages import Shape, Time

if TYPE_CHECKING:
    from counterpoint.cli.api import ApiClient

Verdict = Literal["same", "different", "not replayed", "follows", "erased", "broken", "stopped"]
_EMPTY = hashlib.sha256(b"[]").hexdigest()
_LAST = "done"
"""Name of the last step of a delivery."""


class NoModelCalled(CommandError):
    """No step of a task called a model."""


class FetchedStep(Shape):
    """A step as the API returns it."""

    leaf: int
    record: StepRecord | None = None
    requests: tuple[tuple[GivenAnswer, ...], ...] = ()
    problems: tuple[StepProblem, ...] = ()


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
    model: ModelReport | None = None
    steps: tuple[StepReport, ...]


def replay_task(
    api: "ApiClient",
    task_id: str,
    project: str | None,
    processes: ReplayProcesses,
    *,
    without: str | None = None,
    model: ModelReplay | None = None,
) -> TaskReport:
    """Replay a task. With `without`, its items are left out of what the steps were given; `model` makes the calls of
    models. After the first different step the others are not replayed: they rest on what it decided.

    Raises `NoModelCalled` with a `model` for a task that called none.
    """
    reports: list[StepReport] = []
    steps = _fetch(api, task_id, project)
    deliveries = _deliveries(steps)
    if model is not None and not any(_is_of_model(_calls(steps, delivery)) for delivery in deliveries):
        raise NoModelCalled(f"no step of task {task_id} called a model, so that another one cannot make a difference")
    for delivery in deliveries:
        follows = any(report.verdict == "different" for report in reports)
        reports += _replayed(delivery, steps, processes, without, model, follows=follows)
    reports.sort(key=lambda report: report.leaf)
    verdicts = {each.verdict for each in reports} | ({"stopped"} if model and model.stopped else set())
    ranked: tuple[Verdict, ...] = ("broken", "different", "erased", "stopped", "same")
    return TaskReport(
        task_id=task_id,
        project=next((step.record.project for step in steps if step.record), project or ""),
        verdict=next((each for each in ranked if each in verdicts), "not replayed"),
        contexts=sum(not step.problems and _has_context(step.record) for step in steps),
        without=without,
        left_out=sum(item.without for report in reports for item in report.context),
        model=model and model.report,
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


def _deliveries(steps: Iterable[FetchedStep]) -> list[list[FetchedStep]]:
    """Return the steps by delivery, in the order of their last steps. A call of the gateway is one of its own."""
    deliveries: dict[tuple[str, ...], list[FetchedStep]] = {}
    for step in steps:
        record = step.record
        key = (str(step.leaf),) if record is None or _is_call(record) else (record.service, record.message_id)
        deliveries.setdefault(key, []).append(step)
    return sorted(deliveries.values(), key=lambda delivery: delivery[-1].leaf)


def _is_call(record: StepRecord) -> bool:
    return record.step.startswith(("reserve ", "settle ", "refuse "))


def _calls(steps: Iterable[FetchedStep], delivery: Sequence[FetchedStep]) -> dict[str, RecordedCall]:
    """Return the calls of the gateway that a delivery made, by key. Key and step begin with the same number; a reply
    that came after the step was committed is left out."""
    committed = {step.record.step[:2]: step.record.at for step in delivery if step.record}
    messages = {step.record.message_id for step in delivery if step.record}
    calls: dict[str, RecordedCall] = {}
    for step in steps:
        if step.record is None or not _is_call(step.record) or step.record.message_id not in messages:
            continue
        for body in (write.body for write in step.record.writes if write.store == "model_calls" and write.body):
            at, key = committed.get(body["key"][:2]), body["key"]
            in_time = at is not None and "settled_at" in body and datetime.fromisoformat(body["settled_at"]) < at
            response = body.get("response") if in_time else None
            calls[key] = RecordedCall(kind=body["kind"], model=body["model"], response=response)
    return calls


def _is_of_model(calls: Mapping[str, RecordedCall]) -> bool:
    return any(call.kind == "generate" for call in calls.values())


def _ledger(steps: Iterable[FetchedStep], delivery: Sequence[FetchedStep]) -> list[dict[str, Any]]:
    """Return the final records of the calls that a delivery made."""
    messages = {step.record.message_id for step in delivery if step.record}
    final: dict[str, dict[str, Any]] = {}
    for record in (step.record for step in steps if step.record and step.record.message_id in messages):
        final |= {each.id: each.body for each in record.writes if each.store == "model_calls" and each.body}
    return list(final.values())


def _replayed(
    steps: Sequence[FetchedStep],
    of_task: Sequence[FetchedStep],
    processes: ReplayProcesses,
    without: str | None,
    model: ModelReplay | None,
    *,
    follows: bool,
) -> list[StepReport]:
    """Return the reports on the steps of one delivery; `of_task` are all steps of its task."""
    last, calls = steps[-1], _calls(of_task, steps)
    context = _context(last.requests, without)
    if problems := [problem for step in steps for problem in step.problems]:
        texts = tuple(each.problem for each in problems)
        return [_report(step, _verdict_on(problems), texts, context) for step in steps]
    record = last.record
    assert record is not None, "a step without a record has a problem"
    live = model if _is_of_model(calls) else None
    if why := _cannot_run(steps, record, calls) or (None if live else _refused(of_task, record)):
        return [_report(step, "not replayed", (why,), context) for step in steps]
    if follows:
        return [_report(step, "follows", ("rests on the different step above",), context) for step in steps]
    if live and live.stopped:
        return [_report(step, "not replayed", ("the replay stopped before",), context) for step in steps]
    given = tuple(tuple(_without(answer, without) for answer in request) for request in last.requests)
    delivery = _delivery(record, given, calls)
    if live is not None:
        live.begin(record.commit_id, lambda item: is_item(item, without))
        result = processes.run(delivery.model_copy(update={"live": True}), live.answer)
        recorded = [step.record for step in steps if step.record]
        live.end(last.leaf, recorded, calls, ledger_costs(_ledger(of_task, steps)), result)
        return _compared(steps, result, context)
    result = processes.run(delivery)
    if result.missing is not None:
        return [_report(step, "not replayed", (result.missing,), context) for step in steps]
    return _compared(steps, result, context)


def _verdict_on(problems: Iterable[StepProblem]) -> Verdict:
    """Return the verdict on a delivery that cannot be rebuilt."""
    kinds = {each.kind for each in problems}
    return "broken" if "differs" in kinds else "erased" if "erased" in kinds else "not replayed"


def _compared(
    steps: Sequence[FetchedStep], result: ReplayedDelivery, context: tuple[ContextItem, ...]
) -> list[StepReport]:
    """Return the reports on steps that ran again, up to the first different one."""
    made = {commit.step: commit for commit in result.commits}
    reports: list[StepReport] = []
    for step in steps:
        assert step.record is not None, "a step without a record has a problem"
        commit = made.get(step.record.step)
        if any(report.verdict == "different" for report in reports):
            reports.append(_report(step, "follows", ("rests on the different step above",), context))
        elif commit is not None:
            difference = first_difference(step.record, commit)
            report = _report(step, "different" if difference else "same", (), context)
            decided = decisions(commit.messages)
            reports.append(report.model_copy(update={"difference": difference, "replayed": decided}))
        elif made and step is not steps[-1] and all(report.verdict == "not replayed" for report in reports):
            reports.append(_report(step, "not replayed", ("an earlier delivery made it",), context))
        elif result.missing is not None:
            reports.append(_report(step, "not replayed", (result.missing,), context))
        else:
            stop = result.stopped or "makes no such step"
            report = _report(step, "different", (), context)
            difference = Difference(at="run", recorded="committed", replayed=stop)
            reports.append(report.model_copy(update={"difference": difference}))
    return reports


def _cannot_run(steps: Sequence[FetchedStep], record: StepRecord, calls: dict[str, RecordedCall]) -> str | None:
    """Return the reason why a delivery does not run again, None if it does."""
    if _is_call(record):
        return "pays for a call of a model or of the web"
    if record.service not in MODULES:
        return f"decisions of {record.service} do not run again"
    if record.inbound is None:
        return "its inbound message is not in the log"
    if not _has_context(record):
        return "an earlier release committed it, which did not record the answers"
    if record.step != _LAST or (len(steps) > 1 and not calls):
        return "took several steps, and the record has no call of a model or of the web"
    return None


def _refused(of_task: Iterable[FetchedStep], record: StepRecord) -> str | None:
    """Return that a limit refused a call of a delivery, if one did: the record has only the first such call."""
    refusals = (step.record for step in of_task if step.record and step.record.step.startswith("refuse "))
    return "a limit refused a call of it" if any(each.message_id == record.message_id for each in refusals) else None


def _has_context(record: StepRecord | None) -> bool:
    """Whether the answers of a step were recorded, or there were none; all handlers that run again ask something."""
    if record is None or record.service in MODULES:
        return record is not None and (bool(record.answers) or _is_call(record))
    return record.read_set is None or len(record.read_set) > 2 or record.read_set[1] == _EMPTY


def _delivery(
    record: StepRecord, requests: tuple[tuple[GivenAnswer, ...], ...], calls: dict[str, RecordedCall]
) -> RecordedDelivery:
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
        calls=calls,
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

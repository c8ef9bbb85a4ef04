"""Reports of replays as markdown. Pure functions."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

from counterpoint.cli.replay.compare import DecisionText
from counterpoint.cli.replay.many import RegressionReport
from counterpoint.cli.replay.other_model import CallCosts, ModelReport, ResultText
from counterpoint.cli.replay.task import ContextItem, StepReport, TaskReport
from counterpoint.proto.memory import Ref
from counterpoint.proto.tasks import Budget
from counterpoint.proto.words import quantity

_SHOWN = 20
_CHARS, _CELL_CHARS = 500, 200
_MEANING = {
    "same": "every decision that runs again is the same",
    "different": "a decision is different",
    "not replayed": "no decision of this task can run again",
    "erased": "parts of what it was given were erased, so they cannot be rebuilt",
    "broken": "the record differs from the audit log",
    "stopped": "the other model has not made all decisions, for the reason given below",
}


def task_report(report: TaskReport) -> str:
    """Return the report on one task."""
    lines = [f"# Replay of {report.task_id}", "", f"**{report.verdict}**: {_MEANING[report.verdict]}.", ""]
    lines.append(f"- project: {report.project}")
    contexts = f"{report.contexts} of {quantity(len(report.steps), 'step')}"
    lines.append(f"- contexts rebuilt from the record and equal to the audit log: {contexts}")
    if report.without:
        times = f"left out of {quantity(report.left_out, 'answer')}" if report.left_out else "no step was given it"
        lines.append(f"- without: {report.without}, {times}")
    if report.policy:
        lines.append(f"- policy: {report.policy}")
    if report.model:
        lines.append(f"- model: {report.model.model}, paid by the project {report.model.sandbox}")
    lines += ["", "| leaf | service | recorded decision | replay |", "|---|---|---|---|"]
    lines += [
        f"| {step.leaf} | {step.service} | {_text(step.recorded, _CELL_CHARS)} | {_outcome(step)} |"
        for step in report.steps
    ]
    for step in report.steps:
        if step.difference is not None:
            lines += ["", *_different(step, report.model)]
    if report.model:
        lines += ["", *other_model(report.model)]
    return "\n".join(lines)


def other_model(report: ModelReport) -> list[str]:
    """Return the section on another model: costs, then decisions and results of each delivery that called one."""
    before = ", ".join(dict.fromkeys(name for each in report.deliveries for name in each.recorded_models))
    lines = [f"## {report.model} in place of {before}", *_costs(report, before)]
    for each in report.deliveries:
        lines += ["", f"### {each.service}, leaf {each.leaf}", ""]
        lines += [f"{each.stopped}.", ""] if each.stopped else []
        if each.queries:
            reads = quantity(each.queries, "read")
            lines += [f"It made {reads} of its own, answered as of the last commit of the recorded delivery.", ""]
        lines += ["| | recorded | replayed |", "|---|---|---|"]
        pairs = zip_longest(each.recorded_decisions, each.replayed_decisions)
        lines += [f"| decision | {_one(was, 'none')} | {_one(now, 'none')} |" for was, now in pairs]
        lines.append(f"| result | {_result(each.recorded_result)} | {_result(each.replayed_result)} |")
    return lines


def regression_report(report: RegressionReport, reports: Sequence[TaskReport], failed: Sequence[dict[str, Any]]) -> str:
    """Return the report on a regression run of many tasks against another model."""
    lines = [f"# Regression of {report.model}", "", _conclusion(report), ""]
    lines += [f"- budget of the run: {_budget(report.budget)}, paid by the project {report.sandbox}"]
    lines += ["", "| tasks | |", "|---|---|", f"| replayed | {report.replayed} |"]
    lines += [f"| - {verdict} | {count} |" for verdict, count in report.verdicts.items()]
    lines += [f"| failed | {len(failed)} |"] if failed else []
    lines += [f"| called no model | {report.without_model} |", f"| not run | {report.not_run} |"]
    if report.replayed:
        lines += _costs(report, "recorded")
    notable = [each for each in reports if each.verdict != "same"]
    if notable:
        lines += ["", "| task | verdict | first difference | recorded | replayed |", "|---|---|---|---|---|"]
        lines += [f"| {each.task_id} | {each.verdict} | {_first(each)} | {_both(each)} |" for each in notable]
    lines += [f"\nfailed: {each['task_id']}: {each['error']}" for each in failed]
    return "\n".join(lines)


def _costs(report: ModelReport | RegressionReport, before: str) -> list[str]:
    """Return the table of what the calls cost, recorded and replayed."""
    recorded, replayed = report.recorded_cost, report.replayed_cost
    return [
        "",
        f"| | {before} | {report.model} |",
        "|---|---|---|",
        f"| calls | {recorded.calls} | {replayed.calls} |",
        f"| tokens | {recorded.tokens} | {replayed.tokens} |",
        f"| cost | {_cost(recorded)} | {_cost(replayed)} |",
        f"| seconds | {recorded.seconds:.1f} | {replayed.seconds:.1f} |",
        *_kept(replayed),
    ]


def _conclusion(report: RegressionReport) -> str:
    if not report.tasks:
        return "There is no ended task to replay."
    if report.stopped:
        return f"**stopped**: {report.stopped}. {quantity(report.not_run, 'task')} not run; run it again to go on."
    if not report.replayed:
        return f"None of {quantity(report.tasks, 'ended task')} called a model."
    same = report.verdicts.get("same", 0)
    return f"{same} of {quantity(report.replayed, 'task')} decided the same."


def _budget(budget: Budget) -> str:
    amounts = [f"{budget.usd:f} USD"] if budget.usd is not None else []
    amounts += [f"{budget.tokens} tokens"] if budget.tokens is not None else []
    return " and ".join(amounts)


def _both(report: TaskReport) -> str:
    """Return the recorded and the replayed value of the first difference, as two cells."""
    found = next((step.difference for step in report.steps if step.difference), None)
    return " | ".join(_cell(_value(each), _CELL_CHARS) for each in (found.recorded, found.replayed)) if found else "| "


def _kept(replayed: CallCosts) -> list[str]:
    if not replayed.kept:
        return []
    calls = quantity(replayed.kept, "call")
    return ["", f"{calls} had been made by an earlier replay, so that this one paid {replayed.paid_usd:f} USD."]


def _cost(costs: CallCosts) -> str:
    unknown = f", and {quantity(costs.unpriced, 'call')} without a known price" if costs.unpriced else ""
    return f"{costs.usd:f} USD{unknown}"


def _one(decision: DecisionText | None, absent: str) -> str:
    return absent if decision is None else _text([decision], _CELL_CHARS)


def _result(result: ResultText | None) -> str:
    if result is None:
        return "none"
    score = f" ({result.confidence})" if result.confidence is not None else ""
    return _cell(f"{result.outcome}{score}: {result.text or result.code or 'no text'}")


def summary_report(reports: Sequence[TaskReport], skipped: Sequence[dict[str, Any]]) -> str:
    """Return the report on many tasks."""
    counts = Counter(report.verdict for report in reports)
    lines = [
        "# Replay",
        "",
        f"{quantity(len(reports), 'task')}, {sum(r.contexts for r in reports)} contexts rebuilt.",
        "",
    ]
    lines += ["| verdict | tasks |", "|---|---|", *(f"| {verdict} | {count} |" for verdict, count in counts.items())]
    lines += [f"| failed | {len(skipped)} |"] if skipped else []
    notable = [report for report in reports if report.verdict in ("different", "erased", "broken")]
    if notable:
        lines += ["", "| task | verdict | first difference |", "|---|---|---|"]
        lines += [f"| {report.task_id} | {report.verdict} | {_first(report)} |" for report in notable]
    lines += [f"\nnot replayed: {each['task_id']}: {each['error']}" for each in skipped]
    return "\n".join(lines)


def _different(step: StepReport, model: ModelReport | None) -> list[str]:
    assert step.difference is not None
    lines = [f"## First difference: {step.service}, leaf {step.leaf}", "", f"`{step.difference.at}`", ""]
    lines += [f"- recorded: {_value(step.difference.recorded)}", f"- replayed: {_value(step.difference.replayed)}", ""]
    lines += [f"Recorded decision: {_text(step.recorded)}", "", f"Replayed decision: {_text(step.replayed)}", ""]
    lines += [f"Recorded context, {_items(step.context)}", ""]
    kept = [item for item in step.context if not item.without]
    same = len(kept) == len(step.context)
    own = [ref for each in model.deliveries for ref in each.read] if model else []
    besides = f", and of its own {_items(own)}" if own else ""
    return [*lines, f"Replayed context, {'the same' if same else _items(kept)}{besides}"]


def _outcome(step: StepReport) -> str:
    return f"{step.verdict}: {_cell('; '.join(step.why))}" if step.why else step.verdict


def _first(report: TaskReport) -> str:
    for step in report.steps:
        if step.difference is not None:
            return f"{step.service}: `{step.difference.at}`"
        if step.verdict in ("erased", "broken"):
            return _cell("; ".join(step.why))
    stops = (each.stopped for each in report.model.deliveries if each.stopped) if report.model else iter(())
    return _cell(next(stops, ""))


def _text(decisions: Iterable[DecisionText], chars: int = _CHARS) -> str:
    texts = (
        f"{each.type}: {each.decision}" + (f" ({each.confidence})" if each.confidence is not None else "")
        for each in decisions
    )
    return _cell("; ".join(texts), chars) or "none"


def _items(context: Iterable[ContextItem | Ref]) -> str:
    """Return the number of items of a context, and the first of them by name."""
    names = list(dict.fromkeys(f"{item.store}/{item.id}@{item.version}" for item in context))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{quantity(len(names), 'item')}: {', '.join(names[:_SHOWN]) or 'none'}{more}"


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return _cell(text)


def _cell(text: str, chars: int = _CHARS) -> str:
    short = " ".join(text.split()).replace("|", "\\|")
    return short if len(short) <= chars else f"{short[:chars]}..."

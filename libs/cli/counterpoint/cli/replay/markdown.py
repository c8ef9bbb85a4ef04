"""Reports of replays as markdown. Pure functions."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from counterpoint.cli.replay.compare import DecisionText
from counterpoint.cli.replay.task import ContextItem, StepReport, TaskReport
from counterpoint.proto.words import quantity

_SHOWN = 20
_CHARS, _CELL_CHARS = 500, 200
_MEANING = {
    "same": "every decision that runs again is the same",
    "different": "a decision is different",
    "not replayed": "no decision of this task can run again",
    "erased": "parts of what it was given were erased, so they cannot be rebuilt",
    "broken": "the record differs from the audit log",
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
    lines += ["", "| leaf | service | recorded decision | replay |", "|---|---|---|---|"]
    lines += [
        f"| {step.leaf} | {step.service} | {_text(step.recorded, _CELL_CHARS)} | {_outcome(step)} |"
        for step in report.steps
    ]
    for step in report.steps:
        if step.difference is not None:
            lines += ["", *_different(step)]
    return "\n".join(lines)


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


def _different(step: StepReport) -> list[str]:
    assert step.difference is not None
    lines = [f"## First difference: {step.service}, leaf {step.leaf}", "", f"`{step.difference.at}`", ""]
    lines += [f"- recorded: {_value(step.difference.recorded)}", f"- replayed: {_value(step.difference.replayed)}", ""]
    lines += [f"Recorded decision: {_text(step.recorded)}", "", f"Replayed decision: {_text(step.replayed)}", ""]
    lines += [f"Recorded context, {_items(step.context)}", ""]
    kept = [item for item in step.context if not item.without]
    same = len(kept) == len(step.context)
    return [*lines, f"Replayed context, {'the same' if same else _items(kept)}"]


def _outcome(step: StepReport) -> str:
    return f"{step.verdict}: {_cell('; '.join(step.why))}" if step.why else step.verdict


def _first(report: TaskReport) -> str:
    for step in report.steps:
        if step.difference is not None:
            return f"{step.service}: `{step.difference.at}`"
        if step.verdict in ("erased", "broken"):
            return _cell("; ".join(step.why))
    return ""


def _text(decisions: Iterable[DecisionText], chars: int = _CHARS) -> str:
    texts = (
        f"{each.type}: {each.decision}" + (f" ({each.confidence})" if each.confidence is not None else "")
        for each in decisions
    )
    return _cell("; ".join(texts), chars) or "none"


def _items(context: Iterable[ContextItem]) -> str:
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

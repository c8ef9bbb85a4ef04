"""Draft of a postmortem or of a runbook section, from the records of an incident. Pure, and by rules alone.

Every fact names its record, every text of others is quoted in a block or as code, and what no record holds is marked
`Not recorded`. No sentence about the incident is made up.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, assert_never

from counterpoint.card.content import task_title
from counterpoint.card.failure import moment
from counterpoint.card.inert import block, span
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.line import Action
from counterpoint.proto.tasks import ENDED, Task
from counterpoint.proto.words import quantity

_TIMELINE = 200
_QUOTE_CHARS = 240
_DOWNSTREAM = 50


class DraftForm(StrEnum):
    """Form of a draft."""

    POSTMORTEM = "postmortem"
    RUNBOOK = "runbook"


@dataclass(frozen=True)
class IncidentRecords:
    """The records of an incident: its task, the attempts at it, and the actions of its line."""

    task: Task
    attempts: Sequence[Attempt] = ()
    actions: Sequence[Action] = ()

    @property
    def shown(self) -> list[Attempt]:
        """Return the attempts that were shown to somebody, in order."""
        return sorted((each for each in self.attempts if not each.shadow), key=lambda each: (each.attempt, each.at))

    @property
    def fixes(self) -> list[Attempt]:
        """Return the attempts that succeeded, those that were reported first."""
        worked = [each for each in self.shown if each.outcome == "succeeded"]
        return sorted(worked, key=lambda each: each.evidence != "reported")

    @property
    def context(self) -> Mapping[str, Any]:
        """Return the facts that events contained."""
        return self.task.context or {}


def draft(records: IncidentRecords, form: DraftForm) -> str:
    """Return the draft as markdown."""
    match form:
        case DraftForm.POSTMORTEM:
            parts = _postmortem(records)
        case DraftForm.RUNBOOK:
            parts = _runbook(records)
        case _:
            assert_never(form)
    return "\n\n".join(parts) + "\n"


def missing(text: str) -> str:
    """Return the mark of a gap."""
    return f"**Not recorded:** {text}"


def _postmortem(records: IncidentRecords) -> Iterator[str]:
    yield f"# Postmortem: {span(task_title(records.task))}"
    yield from _head(records)
    yield "## Summary"
    yield "\n".join(_facts(records))
    yield "## Error"
    yield from _error(records.task)
    yield "## Who was affected"
    yield from _affected(records)
    yield "## Timeline"
    yield "\n".join(_timeline(records))
    yield "## Cause"
    yield from _cause(records)
    yield "## What was tried"
    yield from _tried(records.shown, missing("what was tried."))
    yield "## What fixed it"
    yield from _fixed(records)
    yield "## How to verify"
    yield from _verification(records)
    yield "## Prevention"
    yield missing("what prevents it from happening again, who does it, and until when.")
    yield "## Sources"
    yield from _sources(records)


def _runbook(records: IncidentRecords) -> Iterator[str]:
    yield f"# {span(task_title(records.task))}"
    yield from _head(records)
    yield "## Symptom"
    yield from _error(records.task)
    yield "\n".join(_facts(records))
    yield "## Cause"
    yield from _cause(records)
    yield "## Check"
    yield missing("how to tell this cause from others before anything is changed.")
    yield "## Fix"
    fixes = records.fixes
    yield from _tried(fixes, missing("a fix that worked."))
    rest = [each for each in records.shown if each not in fixes and each.outcome in ("failed", "partial")]
    if rest:
        yield "## Did not help"
        yield from _tried(rest, "")
    yield "## Verify"
    yield from _verification(records)
    yield "## Owner"
    yield _owner(records)
    yield "## Sources"
    yield from _sources(records)


def _head(records: IncidentRecords) -> Iterator[str]:
    task = records.task
    yield (
        f"Draft from the records of {span(task.task_id)} in project {span(task.project)}. Texts in blocks are quotes. "
        "Complete what is not recorded, and review it before others rely on it."
    )
    if task.state not in ENDED:
        yield f"**The task has not ended:** its state is {span(task.state)}."


def _facts(records: IncidentRecords) -> Iterator[str]:
    task, context = records.task, records.context
    if job := task.target.job if task.target else None:
        yield f"- Job: {span(f'{job.namespace}/{job.name}')} (task)"
    else:
        yield f"- {missing('the job.')}"
    yield f"- Systems: {', '.join(map(span, task.systems))} (task)" if task.systems else f"- {missing('the systems.')}"
    yield f"- Reported by {span(task.submitted_by)} at {_at(task.submitted_at)} (task)"
    if context.get("failed_at"):
        yield f"- Last failure: {span(moment(context['failed_at']))} (events)"
    repeats = context.get("repeats")
    if isinstance(repeats, Mapping) and repeats.get("count"):
        first = f", the first at {span(moment(repeats['first_at']))}" if repeats.get("first_at") else ""
        yield f"- Failures of this kind: {span(str(repeats['count']))}{first} (events)"
    if context.get("tries"):
        yield f"- Tries of the last run: {span(str(context['tries']))} (events)"
    yield f"- {_owner(records)}"
    if task.ended_at:
        how = f", {span(task.resolution)}" if task.resolution else ""
        yield f"- Ended at {_at(task.ended_at)}{how} (task)"
    else:
        yield f"- {missing('when it ended.')}"


def _owner(records: IncidentRecords) -> str:
    owner = records.context.get("owner")
    return f"Owner: {span(str(owner))} (events)" if owner else missing("who owns the job.")


def _error(task: Task) -> Iterator[str]:
    if task.error_message and task.error_message.strip():
        yield block(task.error_message)
    else:
        yield missing("the error message.")
    yield "Described in the task as:"
    yield block(task.description)


def _affected(records: IncidentRecords) -> Iterator[str]:
    rows = records.task.findings.downstream if records.task.findings else ()
    lines = []
    for row in rows[:_DOWNSTREAM]:
        owner = f", owner {span(row.owner)}" if row.owner else ""
        source = f"stated by {span(records.task.submitted_by)}" if row.claimed_by else "lineage"
        lines.append(
            f"- {quantity(row.hops, 'hop')} downstream: {span(f'{row.namespace}/{row.name}')}{owner} ({source})"
        )
    if len(rows) > _DOWNSTREAM:
        lines.append(f"- and {len(rows) - _DOWNSTREAM} more (lineage)")
    for each in _rows(records.context.get("affected")):
        name = "/".join(str(each[part]) for part in ("namespace", "name") if each.get(part))
        at = f" at {span(moment(each['failed_at']))}" if each.get("failed_at") else ""
        lines.append(f"- Failed after it{at}: {span(name)} (events)")
    yield "\n".join(lines) if lines else missing("who was affected.")
    if lines:
        yield missing("what it meant for people.")


def _timeline(records: IncidentRecords) -> Iterator[str]:
    task = records.task
    entries: list[tuple[datetime, str]] = [(task.submitted_at, f"reported by {span(task.submitted_by)} (task)")]
    for action in records.actions:
        quote = span(_shortened(action.reasoning))
        entries.append((action.at, f"{span(action.agent)}, {span(action.kind)}: {quote} (action)"))
    for each in records.shown:
        if each.decided_at:
            how = f"attempt {each.attempt} {span(each.outcome)}, {span(each.evidence)} by {span(each.by)}"
            entries.append((each.decided_at, f"{how} (attempt {each.attempt})"))
    if task.ended_at:
        entries.append((task.ended_at, f"{span(task.state)} (task)"))
    ordered = sorted(entries, key=lambda entry: entry[0])
    yield from (f"- {_at(at)}: {text}" for at, text in ordered[:_TIMELINE])
    if len(ordered) > _TIMELINE:
        yield f"- and {len(ordered) - _TIMELINE} more, up to {_at(ordered[-1][0])} (`counterpoint why`)"


def _cause(records: IncidentRecords) -> Iterator[str]:
    stated = [each for each in records.shown if each.cause]
    for each in stated:
        yield f"Stated with attempt {each.attempt} by {span(each.by)}:"
        yield block(each.cause or "")
    if not stated:
        yield missing("the cause.")
    changed = [
        *_changes(records.context),
        *(f"{span(each)} (attempt {a.attempt})" for a in records.shown for each in a.changed),
    ]
    if changed:
        yield "Recorded differences from the last run that worked, which need not be the cause:"
        yield "\n".join(f"- {each}" for each in changed)


def _changes(context: Mapping[str, Any]) -> Iterator[str]:
    for row in _rows(context.get("changed")):
        named = " ".join(str(row[part]) for part in ("what", "name") if row.get(part))
        before, after = row.get("before"), row.get("after")
        values = (
            f": {span(str(before))} before, {span(str(after))} after" if before is not None or after is not None else ""
        )
        yield f"{span(named)}{values} (events)"


def _tried(attempts: Sequence[Attempt], otherwise: str) -> Iterator[str]:
    if not attempts:
        yield otherwise
    for each in attempts:
        yield f"### Attempt {each.attempt}"
        author = f", under an override of {span(each.override_by)}" if each.override_by else ""
        at = f" at {_at(each.decided_at)}" if each.decided_at else ""
        if each.outcome == "unknown":
            yield f"Proposed by {span(each.by)}{author}, without an outcome yet:"
        else:
            yield f"Outcome: {span(each.outcome)}, {span(each.evidence)} by {span(each.by)}{at}{author}. Tried:"
        yield block(each.tried)
        for label, text in _beside(each):
            yield f"{label}:"
            yield block(text)


def _beside(attempt: Attempt) -> Iterator[tuple[str, str]]:
    if attempt.note and attempt.note != attempt.tried:
        yield "Noted with its outcome", attempt.note
    if attempt.outcome_error:
        yield "The error afterwards", attempt.outcome_error
    if attempt.reason:
        yield "The reason given", attempt.reason
    yield from (("A condition given", each) for each in attempt.constraints)


def _fixed(records: IncidentRecords) -> Iterator[str]:
    if not records.fixes:
        yield missing("what fixed it.")
    for each in records.fixes:
        yield f"Attempt {each.attempt}, {span(each.evidence)} by {span(each.by)}."
    if records.fixes and all(each.evidence != "reported" for each in records.fixes):
        yield missing("whether it was the cause of the recovery: nobody has reported it.")


def _verification(records: IncidentRecords) -> Iterator[str]:
    stated = [each for each in records.shown if each.verification]
    for each in stated:
        yield f"Stated with attempt {each.attempt} by {span(each.by)}:"
        yield block(each.verification or "")
    if not stated:
        yield missing("how to verify that the fix works.")


def _sources(records: IncidentRecords) -> Iterator[str]:
    cited = [each for each in (records.task.findings.citations if records.task.findings else ()) if not each.role]
    for each in cited:
        yield f"{span(each.source_path)}, characters {each.start} to {each.end}, version {each.version}:"
        yield block(each.quote)
    if not cited:
        yield missing("a document that was cited.")
    links = {"log": records.context.get("log_url"), "reported in": records.task.source_ref}
    lines = [f"- {name}: {span(str(url))}" for name, url in links.items() if url]
    lines += [f"- attempt {each.attempt}: {span(each.attempt_id)}" for each in records.shown]
    lines.append(f"- actions of the line: {len(records.actions)}")
    yield "\n".join(lines)


def _shortened(text: str) -> str:
    return text if len(text) <= _QUOTE_CHARS else f"{text[:_QUOTE_CHARS].rstrip()} …"


def _at(value: datetime) -> str:
    return f"{value:%Y-%m-%d %H:%M:%S} UTC"


def _rows(value: Any) -> Sequence[Mapping[str, Any]]:
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list | tuple) else []

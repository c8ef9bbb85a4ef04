"""The card of a task: what failed, what is known, what to do next. Pure: a task in, text or a panel out."""

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from counterpoint.proto.decisions import Confidence
from counterpoint.proto.findings import Citation, Downstream, SimilarAttempt
from counterpoint.proto.tasks import Task

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

WIDTH = 100
SHOWN_ROWS = 12
_LABEL = 14
_MARKED = (
    (re.compile(r"\bincident-[0-9a-f]{24}\b"), "INCIDENT"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d(:|%3A)\d\d((:|%3A)\d\d(\.\d+)?)?( UTC|Z|(\+|%2B)\d\d(:|%3A)\d\d)?"), "TIME"),
    (re.compile(r"\b\d{4}-\d\d-\d\d\b"), "DAY"),
)


_BLOCK = re.compile(r"(\d+\. |[-*+] |\||#|```|\[\d+\] )")


@dataclass(frozen=True)
class Card:
    """What is shown of a task: its title, lines below it, and labelled paragraphs."""

    title: str
    subtitles: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]


def card(task: Task) -> Card:
    """The card of a task, whatever its state."""
    rows = ((label, tuple(lines)) for label, lines in _rows(task))
    return Card(
        title=task.title or task.description.splitlines()[0],
        subtitles=(f"{task.kind}, {_state(task)}", f"{task.task_id} in project {task.project}"),
        rows=tuple((label, lines) for label, lines in rows if lines),
    )


def text(shown: Card, width: int = WIDTH) -> str:
    """The card as plain text of `width` columns."""
    lines = [line for head in (shown.title, *shown.subtitles) for line in _wrapped(head, width)]
    for gap, (label, paragraphs) in zip(_gaps(shown), shown.rows, strict=True):
        lines += [""] * gap
        for number, line in enumerate(_paragraphs(paragraphs, width - _LABEL)):
            lines.append(f"{label if number == 0 else '':<{_LABEL}}{line}".rstrip())
    return "\n".join(lines)


def panel(shown: Card) -> "RenderableType":
    """The card for a terminal."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1))
    grid.add_column(style="bold cyan", width=_LABEL - 1)
    grid.add_column(overflow="fold")
    for gap, (label, lines) in zip(_gaps(shown), shown.rows, strict=True):
        if gap:
            grid.add_row("", "")
        grid.add_row(label, Text("\n".join(lines)))
    return Panel(
        Group(Text("\n".join(shown.subtitles), style="dim"), grid),
        title=Text(shown.title, style="bold"),
        title_align="left",
    )


def rendered(task: Mapping[str, Any], console: "Console") -> "RenderableType":
    """The card of a task as HTTP gives it: a panel on a terminal, plain text elsewhere."""
    shown = card(Task.model_validate(task))
    return panel(shown) if console.is_terminal else text(shown)


def normalised(shown: str) -> str:
    """A card's text with its ids and times replaced by words, to compare cards of two runs."""
    for pattern, word in _MARKED:
        shown = pattern.sub(word, shown)
    return " ".join(shown.split())


def _gaps(shown: Card) -> Iterator[bool]:
    """Whether each row is set apart from the one above: rows of one line stand together."""
    above = 2
    for _, lines in shown.rows:
        yield above > 1 or len(lines) > 1
        above = len(lines)


def _rows(task: Task) -> Iterator[tuple[str, Iterable[str]]]:
    context = task.context or {}
    if task.title and task.title != task.description:
        yield "about", [task.description]
    if task.error_message:
        yield "error", [task.error_message.strip()]
    if tries := _tries(context):
        yield "tries", [tries]
    if log_url := context.get("log_url"):
        yield "log", [str(log_url)]
    if owner := context.get("owner"):
        yield "owner", [str(owner)]
    if task.findings and task.findings.downstream:
        yield "downstream", _downstream(task.findings.downstream)
    if task.kind != "question":
        yield "known", _known(task)
    if task.findings:
        yield "tried before", [_tried(attempt) for attempt in task.findings.similar_attempts[:SHOWN_ROWS]]
    yield from _work(task)
    if task.confidence:
        yield "confidence", _confidence(task.confidence)
    if task.findings:
        yield "next", task.findings.next_steps
        yield "caveats", task.findings.caveats
    if task.state == "input_required" and task.escalation:
        yield "needs", _needs(task)
    if task.waiting_for == "outcome":
        yield "report", _report(task)
    if task.reason:
        yield "reason", [task.reason]


def _state(task: Task) -> str:
    match task.state, task.waiting_for:
        case "input_required", "outcome":
            return f"attempt {task.attempt} waits for its outcome"
        case "input_required", waiting_for:
            said = f"escalated to {task.escalation.to} ({task.escalation.code}), " if task.escalation else ""
            return f"{said}waits for {waiting_for}"
        case "working", _:
            return f"in work, attempt {task.attempt or 1}"
        case "completed", _:
            return f"completed ({task.resolution})"
        case state, _:
            return state


def _tries(context: Mapping[str, Any]) -> str | None:
    tries, retries = context.get("tries"), context.get("retries")
    if tries is None:
        return None
    most = f" of {retries + 1}" if isinstance(retries, int) else ""
    failed_at = context.get("failed_at")
    return f"{tries}{most}, the last at {_moment(failed_at)}" if failed_at else f"{tries}{most}"


def _moment(said: Any) -> str:
    """A moment as another system wrote it, readable where it is one."""
    try:
        moment = datetime.fromisoformat(said)
    except (TypeError, ValueError):
        return str(said)
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if moment.tzinfo else str(said)


def _downstream(found: Iterable[Downstream]) -> Iterator[str]:
    edges: dict[tuple[str, str, str], list[Downstream]] = {}
    for row in found:
        edges.setdefault((row.kind, row.namespace, row.name), []).append(row)
    merged = [(name, rows) for (_, _, name), rows in edges.items()]
    shown = merged[:SHOWN_ROWS]
    width = max(len(name) for name, _ in shown)
    for name, rows in shown:
        hops = counted(min(row.hops for row in rows), "hop")
        waits = "" if any(row.edge == "data" for row in rows) else ", by control alone"
        yield f"{hops:<7} {rows[0].kind:<8} {name:<{width}}  {rows[0].owner or 'no owner'}{waits}"
    if len(merged) > SHOWN_ROWS:
        yield f"and {len(merged) - SHOWN_ROWS} more"


def _known(task: Task) -> Iterator[str]:
    if task.findings is None:
        yield "not looked yet"
        return
    attempts = task.findings.similar_attempts
    before = [attempt for attempt in attempts if attempt.when < task.submitted_at]
    here = [attempt for attempt in attempts if attempt.when >= task.submitted_at]
    if before:
        yield f"seen before: {_outcomes(before)}"
    else:
        yield "nothing yet: earlier attempts were looked for, and there are none"
    if here:
        yield f"tried since: {_outcomes(here)}"
    documents = {citation.source_path for citation in task.findings.citations if citation.store == "chunks"}
    if _unfounded(task):
        yield "no document that is about it" + (", the nearest are quoted below" if documents else "")
    elif documents:
        yield f"{counted(len(documents), 'document')} about it"
    if task.escalation and _unfounded(task):
        for what in task.escalation.searched_for:
            yield f"looked for {textwrap.shorten(what, 160, placeholder=' …')}"


def _unfounded(task: Task) -> bool:
    """Whether what is cited was the nearest there is, and not found to be about it."""
    match task.escalation.code if task.escalation else None:
        case "low_confidence" | "insufficient_evidence":
            return True
        case "no_model":
            return not (task.findings and task.findings.next_steps)
        case _:
            return False


def _outcomes(attempts: Sequence[SimilarAttempt]) -> str:
    outcomes = Counter(attempt.outcome for attempt in attempts)
    each = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
    return f"{counted(len(attempts), 'attempt')}, {each}"


def _tried(attempt: SimilarAttempt) -> str:
    note = f"; noted: {' '.join(attempt.note.split())}" if attempt.note else ""
    tried = textwrap.shorten(attempt.tried, 300, placeholder=" …")
    said = f"{attempt.outcome} ({attempt.evidence})" if attempt.outcome != "unknown" else "no outcome yet"
    return f"{attempt.when.date()}  {said}, {attempt.by}: “{tried}”{note}"


def _work(task: Task) -> Iterator[tuple[str, Iterable[str]]]:
    """The proposal or answer, then what is cited and not yet quoted in it."""
    said = task.result or task.proposal
    if said:
        yield _label(task), _reflowed(said.strip())
    if task.findings:
        shown = _flat(said or "")
        rest = [citation for citation in task.findings.citations if _flat(citation.quote) not in shown]
        yield ("nearest" if _unfounded(task) else "quoted"), (line for citation in rest for line in _quoted(citation))


def _label(task: Task) -> str:
    if task.kind == "question":
        return "answer"
    if task.result:
        return "result"
    return "proposed" if task.waiting_for == "outcome" else "last proposed"


def _quoted(citation: Citation) -> Iterator[str]:
    lines = list(_reflowed(citation.quote))
    lines[0], lines[-1] = f"“{lines[0]}", f"{lines[-1]}”" if len(lines) > 1 else f"“{lines[0]}”"
    yield from lines
    yield f"{citation.source_path}, characters {citation.start} to {citation.end}"


def _reflowed(markdown: str) -> Iterator[str]:
    """The paragraphs and list items of a markdown text, each on one line however its source broke it.

    Tables and code keep their lines.
    """
    paragraph, code = "", False
    for line in markdown.split("\n"):
        quoted = line.startswith(">")
        said = line.removeprefix(">").lstrip()
        fence = said.startswith("```")
        begins = code or fence or _BLOCK.match(said) or quoted != paragraph.startswith(">") or paragraph.endswith("  ")
        if paragraph and said and not begins:
            paragraph = f"{paragraph} {said}"
            continue
        if paragraph:
            yield paragraph
        code ^= fence
        paragraph = "" if code or fence else line
        if not paragraph.strip():
            yield line
            paragraph = ""
    if paragraph:
        yield paragraph


def _flat(quoted: str) -> str:
    return " ".join(line.removeprefix(">").strip() for line in quoted.split("\n"))


def _confidence(known: Confidence) -> Iterator[str]:
    yield f"{known.score:.2f}, {known.band}"
    if terms := known.terms:
        exists = terms.provider_exists
        provider = f"{exists}, counts as yes" if isinstance(exists, str) else _word(exists)
        yield (
            f"0.4 × similarity {terms.rag_similarity:.2f} + 0.3 × {min(terms.rag_hits, 5)}/5 sources"
            f" + 0.2 × provider ({provider}) + 0.1 × similar success ({_word(terms.similar_dag)})"
        )


def _needs(task: Task) -> Iterator[str]:
    if task.escalation:
        for need in task.escalation.needs:
            yield f"{need.kind}: {need.what}"
            yield f"    {need.how}"


def _report(task: Task) -> Iterator[str]:
    yield f"counterpoint outcome {task.task_id} succeeded --attempt {task.attempt} --project {task.project}"
    yield "or `failed` or `partial`; --note says what was done or seen"


def _word(value: bool) -> str:
    return "yes" if value else "no"


def counted(number: int, noun: str) -> str:
    """A number of things."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _paragraphs(paragraphs: Iterable[str], width: int) -> Iterator[str]:
    for paragraph in paragraphs:
        for line in paragraph.split("\n"):
            yield from _wrapped(line, width)


def _wrapped(line: str, width: int) -> list[str]:
    """A line in several; what it begins with (a quote mark, an indent, a list number) is kept or hung."""
    begin = re.match(r"\s*(> ?)?", line)
    prefix = begin.group() if begin else ""
    step = re.match(r"(\d+\.|[-*]) ", line[len(prefix) :])
    return textwrap.wrap(
        line[len(prefix) :],
        width,
        initial_indent=prefix,
        subsequent_indent=prefix + " " * (len(step.group()) if step else 0),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [prefix.rstrip()]

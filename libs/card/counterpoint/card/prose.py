"""Sections of prose: the proposal or answer, next steps, caveats, and quotes of their sources."""

import re
import shlex
from collections.abc import Iterator

from counterpoint.card.history import is_offer
from counterpoint.card.model import CardSection, section
from counterpoint.proto.findings import OUTDATED_SOURCES, Citation
from counterpoint.proto.tasks import Task
from counterpoint.proto.words import quantity

_QUOTES = 3
_ASKED_CHARS = 500
"""Longest question that a command repeats."""
_PLANNED = frozenset({"no_provider", "no_model"})
"""Codes of stops whose text is a plan."""
_BLOCK = re.compile(r"(\d+\. |[-*+] |\||#|```|\[\d+\] )")
_LATER_STEP = re.compile(r"(?!1\. )\d+\. ")


def proposal(task: Task) -> CardSection:
    """Return the result, the proposal, or the offer of a stopped task."""
    result = _text(task)
    return section(_label(task), reflowed(result.strip()) if result else (), "markdown")


def outdated(task: Task) -> CardSection:
    """Return a warning for each quoted source that was changed or taken back since, and the command to work without
    it."""
    warning = "was changed or taken back since it was quoted here: do not act on the quote before you have checked it"
    warnings = [f"{each} {warning}" for each in outdated_sources(task)]
    again = _again(task) if warnings else None
    return section("outdated", [*warnings, *(("to work on it again:", f"    {again}") if again else ())])


def outdated_sources(task: Task) -> list[str]:
    """Return the quoted sources that were changed or taken back since."""
    sources = (task.context or {}).get(OUTDATED_SOURCES)
    return [each for each in sources if isinstance(each, str)] if isinstance(sources, list) else []


def _again(task: Task) -> str | None:
    """Return the command that replaces a proposal, or asks a question again; None where there is nothing to replace."""
    if task.waiting_for == "outcome" and task.proposal:
        note = '--note "not tried: its source was changed or taken back"'
        return f"counterpoint outcome {task.task_id} failed --attempt {task.attempt} {note} --project {task.project}"
    if task.kind == "question" and task.result and len(task.description) <= _ASKED_CHARS:
        return f"counterpoint ask {shlex.quote(' '.join(task.description.split()))} --project {task.project}"
    return None


def next_steps(task: Task) -> CardSection:
    """Return the next steps without the proposal and the needs."""
    result = flat(_text(task) or "")
    steps = task.findings.next_steps if task.findings else ()
    needs = tuple(need.what for need in task.needs)
    return section("then", [step for step in steps if flat(step) not in result and not step.startswith(needs)])


def caveats(task: Task, verbose: bool) -> CardSection:
    """Return the caveats; with `verbose` also those that the confidence repeats in words."""
    texts = task.findings.caveats if task.findings else ()
    band = task.confidence.band if task.confidence else ""
    return section("caveats", [one for one in texts if verbose or not one.startswith(f"confidence is {band}")])


def documents(task: Task) -> CardSection:
    """Return the number of relevant documents."""
    if task.findings is None or task.kind == "question":
        return section("documents", ())
    sources = {citation.source_path for citation in task.findings.citations if citation.store == "chunks"}
    if unfounded(task):
        nearest = ", the nearest are quoted below" if sources else ""
        return section("documents", [f"no relevant document{nearest}"])
    about = "that may be about it" if is_offer(task) else "about it"
    return section("documents", [f"{quantity(len(sources), 'document')} {about}"] if sources else ())


def quotes(task: Task, verbose: bool) -> CardSection:
    """Return the citations that the text does not quote, without `verbose` the first few."""
    label = "nearest" if unfounded(task) else "quoted"
    if task.findings is None:
        return section(label, ())
    result = flat(_text(task) or "")
    rest = [citation for citation in task.findings.citations if flat(citation.quote) not in result]
    shown = rest if verbose else rest[:_QUOTES]
    return section(label, [line for citation in shown for line in _quoted(citation)])


def unfounded(task: Task) -> bool:
    """Return whether the citations are only the nearest passages, none of them found relevant."""
    cited = task.findings.citations if task.findings else ()
    if cited and all(citation.role == "candidate" for citation in cited):
        return True
    match task.escalation.code if task.escalation else None:
        case "low_confidence" | "insufficient_evidence":
            return True
        case "no_model":
            return not (task.findings and task.findings.next_steps)
        case _:
            return False


def reflowed(markdown: str) -> Iterator[str]:
    """Yield the paragraphs and list items of a markdown text, each on one line; tables and code keep their lines."""
    paragraph, code = "", False
    for line in markdown.split("\n"):
        quoted = line.startswith(">")
        content = line.removeprefix(">").lstrip()
        fence = content.startswith("```")
        begins = (
            code
            or fence
            or (_BLOCK.match(content) and not _continues(paragraph, content))
            or quoted != paragraph.startswith(">")
            or paragraph.endswith("  ")
        )
        if paragraph and content and not begins:
            paragraph = f"{paragraph} {content}"
            continue
        if paragraph:
            yield paragraph
        code ^= fence
        paragraph = "" if code or fence else line
        if not paragraph.strip(" >"):
            yield line
            paragraph = ""
    if paragraph:
        yield paragraph


def _continues(paragraph: str, content: str) -> bool:
    """Return whether a line with a number in front goes on with a sentence ("on the" / "3. October"): as in CommonMark,
    only the number 1 begins a list within a paragraph."""
    return bool(_LATER_STEP.match(content)) and not _BLOCK.match(paragraph.removeprefix(">").lstrip())


def flat(quoted: str) -> str:
    """Return a text on one line, without the marks of a quote."""
    return " ".join(" ".join(line.removeprefix(">") for line in quoted.split("\n")).split())


def _text(task: Task) -> str | None:
    """Return the main text; the offer of a stopped task is the first of its next steps."""
    steps = task.findings.next_steps if task.findings and is_offer(task) else ()
    return task.result or task.proposal or next(iter(steps), None)


def _label(task: Task) -> str:
    if task.kind == "question":
        return "answer"
    if task.result:
        return "result"
    if is_offer(task):
        return "may help"
    if task.escalation and task.escalation.code in _PLANNED:
        return "plan"
    return "do first" if task.waiting_for == "outcome" else "last proposed"


def _quoted(citation: Citation) -> Iterator[str]:
    lines = list(reflowed(citation.quote))
    lines[0], lines[-1] = f"“{lines[0]}", f"{lines[-1]}”" if len(lines) > 1 else f"“{lines[0]}”"
    yield from lines
    yield f"{citation.source_path}, characters {citation.start} to {citation.end}"

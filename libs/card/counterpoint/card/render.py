"""Rendering of a card for a terminal, as markdown and as plain text. Pure: a card in, text out."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, assert_never

from counterpoint.card.content import card
from counterpoint.card.model import CardSection, Line, TaskCard
from counterpoint.proto.tasks import Task

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

WIDTH = 100
_LABEL = 14
_COMMAND = "counterpoint "
_MARKED = (
    (re.compile(r"\bincident-[0-9a-f]{24}\b"), "INCIDENT"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d(:|%3A)\d\d((:|%3A)\d\d(\.\d+)?)?( UTC|Z|(\+|%2B)\d\d(:|%3A)\d\d)?"), "TIME"),
    (re.compile(r"\b\d{4}-\d\d-\d\d\b"), "DAY"),
    (re.compile(r"\btime in \d+ (minute|hour|day)s?\b"), "time in SPAN"),
)
_MARKUP = re.compile(r"[\\`*\[<|]|~(?=~)|(?<![^\W_])_|_(?![^\W_])|^[>#+-](?= )")


class Format(StrEnum):
    """Format of a card."""

    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    PLAIN = "plain"


def render(task_card: TaskCard, form: Format, width: int = WIDTH) -> str:
    """Return the card as text of `width` columns, a terminal's without colours. A command is never wrapped."""
    match form:
        case Format.PLAIN:
            return text(task_card, width)
        case Format.MARKDOWN:
            return markdown(task_card)
        case Format.TERMINAL:
            return panel(task_card, width).plain
        case _:
            assert_never(form)


def rendered(
    task: Mapping[str, Any], console: "Console", *, verbose: bool = False, form: Format | None = None
) -> "RenderableType":
    """Return the card of a task from HTTP; without a format for the device: a terminal, or plain text."""
    task_card = card(Task.model_validate(task), verbose=verbose)
    form = form or (Format.TERMINAL if console.is_terminal else Format.PLAIN)
    if form is not Format.TERMINAL:
        return render(task_card, form)
    return panel(task_card, console.width if console.is_terminal else WIDTH)


def text(task_card: TaskCard, width: int = WIDTH) -> str:
    """Return the card as plain text of `width` columns, with each command on one line."""
    rows = (f"{label:<{_LABEL}}{line}".rstrip() for label, line in _rows(task_card, width))
    return "\n".join((*_heads((task_card.title, *task_card.subtitles), width), *rows))


def markdown(task_card: TaskCard) -> str:
    """Return the card as markdown: a heading, and a paragraph, a list, a block of code or a passage a section."""
    parts = [f"### {_escaped(task_card.title)}", "  \n".join(f"*{_escaped(each)}*" for each in task_card.subtitles)]
    parts += ["\n".join(_marked(each)) for each in task_card.sections]
    return "\n\n".join(parts)


def panel(task_card: TaskCard, width: int) -> "Text":
    """Return the card for a terminal between two rules. Print it with `soft_wrap`: a command then is one line."""
    from rich.text import Text

    shown = Text("─" * width)
    for style, heads in (("bold", (task_card.title,)), ("dim", task_card.subtitles)):
        for head in _heads(heads, width):
            shown.append("\n").append(head, style)
    for label, line in _rows(task_card, width):
        shown.append("\n").append(f"{label:<{_LABEL}}" if label or line else "", "bold cyan").append(line)
    return shown.append("\n" + "─" * width)


def normalised(text: str) -> str:
    """Return a card's text with ids and times replaced by words, to compare the cards of two runs."""
    for pattern, word in _MARKED:
        text = pattern.sub(word, text)
    return " ".join(text.split())


def _heads(heads: Iterable[str], width: int) -> Iterator[str]:
    for head in heads:
        yield from wrapped(head, width)


def _rows(task_card: TaskCard, width: int) -> Iterator[tuple[str, str]]:
    """Yield the lines of all sections, each with the label of its section if it is the first; empty ones between."""
    for gap, each in zip(_gaps(task_card), task_card.sections, strict=True):
        if gap:
            yield "", ""
        for number, line in enumerate(_paragraphs(_aligned(each.lines, width - _LABEL), width - _LABEL)):
            yield each.label if number == 0 else "", line


def _gaps(task_card: TaskCard) -> Iterator[bool]:
    """Yield whether a blank line precedes each section: sections of one line are grouped."""
    above = 2
    for each in task_card.sections:
        yield above > 1 or len(each.lines) > 1
        above = len(each.lines)


def _aligned(lines: Iterable[Line], width: int) -> list[str]:
    """Return the lines, with the cells of rows in columns. A row that is too wide continues on indented lines, and
    widens no column."""
    lines = list(lines)
    rows = [line for line in lines if isinstance(line, tuple) and len("  ".join(line)) <= width]
    widths = [max(len(row[at]) for row in rows if at < len(row)) for at in range(max(map(len, rows), default=0))]
    return [line if isinstance(line, str) else _columns(line, widths, width) for line in lines]


def _columns(row: tuple[str, ...], widths: list[int], most: int) -> str:
    padding = chain(widths, repeat(0))
    cells = [cell.ljust(width) for cell, width in zip(row, padding, strict=False) if cell or width]
    first, *rest = cells or [""]
    lines = [first]
    for cell in rest:
        if len(f"{lines[-1]}  {cell}".rstrip()) <= most:
            lines[-1] += f"  {cell}"
        else:
            lines.append(f"    {cell}")
    return "\n".join(line.rstrip() for line in lines)


def _marked(each: CardSection) -> Iterator[str]:
    match each.style:
        case "markdown":
            yield f"**{each.label}**"
            yield ""
            yield from (str(line) for line in each.lines)
        case "code":
            lines = [str(line) for line in each.lines]
            longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
            fence = "`" * max(3, longest + 1)
            yield f"**{each.label}**"
            yield ""
            yield from (f"{fence}text", *lines, fence)
        case "text":
            texts = [_plain(line) for line in each.lines]
            if len(texts) == 1 and "\n" not in texts[0]:
                yield f"**{each.label}** {texts[0]}"
                return
            yield f"**{each.label}**"
            yield ""
            yield from (f"- {line}".replace("\n", "\n  ") for line in texts)
        case _:
            assert_never(each.style)


def _plain(line: Line) -> str:
    if isinstance(line, tuple):
        return ", ".join(_plain(cell) for cell in line if cell)
    text = line.strip()
    return f"`{text}`" if text.startswith(_COMMAND) and "`" not in text else _escaped(text)


def _escaped(text: str) -> str:
    """Return a text with its markdown escaped, except in URLs, which remain links."""
    return " ".join(
        word if re.match(r"https?://", word) else _MARKUP.sub(r"\\\g<0>", word) for word in re.split(r" ", text)
    )


def _paragraphs(paragraphs: Iterable[str], width: int) -> Iterator[str]:
    for paragraph in paragraphs:
        for line in paragraph.split("\n"):
            yield from wrapped(line, width)


def wrapped(line: str, width: int) -> list[str]:
    """Return a line wrapped, its prefix (a quote mark, an indent, a list number) repeated or indented. A command
    stays on one line, so that it can be copied."""
    if len(line) <= width or line.lstrip().startswith(_COMMAND):
        return [line.rstrip()]
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

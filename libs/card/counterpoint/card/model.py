"""Card: a title, subtitles and labelled sections, before it is rendered."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

SHOWN_ROWS = 10
"""Rows of a list that are shown; further ones are folded into one line."""

Line = str | tuple[str, ...]
"""A line of text, or the cells of a row, aligned with the neighbouring rows."""
Style = Literal["text", "markdown", "code"]


@dataclass(frozen=True)
class CardSection:
    """A label and its lines. `markdown` lines are passed on as they are where markdown is rendered."""

    label: str
    lines: tuple[Line, ...]
    style: Style = "text"


@dataclass(frozen=True)
class TaskCard:
    """Content of a card, the same for every format."""

    title: str
    subtitles: tuple[str, ...]
    sections: tuple[CardSection, ...]


def section(label: str, lines: Iterable[Line], style: Style = "text") -> CardSection:
    """Return a section of these lines."""
    return CardSection(label, tuple(lines), style)

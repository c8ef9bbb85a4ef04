"""The body of a page: headings, and labelled blocks of code below them. Pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from counterpoint.card.inert import block_text
from counterpoint.cli.lessons.front_matter import PageError

_HEADING = re.compile(r"(#{1,3})\s+(.*)")
_LABEL = re.compile(r"\*\*([^*]+)\*\*\s*$")
_ITALICS = re.compile(r"\*(?!\*).*\*\s*$")
_OPEN = re.compile(r"(`{3,})\s*+([a-z]*)\s*$")


@dataclass(frozen=True)
class Heading:
    """A heading."""

    line: int
    level: int
    text: str


@dataclass(frozen=True)
class LabelledBlock:
    """A label and the text of the block below it."""

    line: int
    label: str
    text: str


@dataclass(frozen=True)
class DerivedLine:
    """A line in italics, which is derived from the rest of the page."""

    line: int
    text: str


@dataclass(frozen=True)
class Prose:
    """Lines that a person wrote outside of a block."""

    line: int
    text: str


Part = Heading | LabelledBlock | DerivedLine | Prose


def parts(lines: Sequence[str], offset: int) -> Iterator[Part]:
    """Yield the parts of a body, in order. `offset` is the number of lines before it. Raises `PageError`."""
    at, label, prose = 0, None, list[tuple[int, str]]()
    while at < len(lines):
        line, number = lines[at], offset + at + 1
        opened = _OPEN.match(line)
        special = opened or _HEADING.match(line) or _LABEL.match(line) or _ITALICS.match(line)
        if special and prose:
            yield _prose(prose)
            prose = []
        if label is not None and line.strip() and not opened:
            raise PageError(number, label[1], "must be followed by a block that begins with ```")
        if opened:
            if label is None:
                raise PageError(number, "block", "has no label: put a line such as **Note** before it")
            text, at = _block(lines, at, opened, offset)
            yield LabelledBlock(label[0], label[1], text)
            label = None
        elif heading := _HEADING.match(line):
            yield Heading(number, len(heading[1]), heading[2].strip())
        elif labelled := _LABEL.match(line):
            label = (number, labelled[1].strip())
        elif _ITALICS.match(line):
            yield DerivedLine(number, line.strip())
        elif line.strip() or prose:
            prose.append((number, line))
        at += 1
    if label is not None:
        raise PageError(label[0], label[1], "must be followed by a block that begins with ```")
    if prose:
        yield _prose(prose)


def _prose(lines: Sequence[tuple[int, str]]) -> Prose:
    return Prose(lines[0][0], "\n".join(line for _, line in lines).strip())


def _block(lines: Sequence[str], start: int, opened: re.Match[str], offset: int) -> tuple[str, int]:
    """Return the text of the block that is opened at `start`, and the index of its last line."""
    fence, info = opened[1], opened[2]
    for end in range(start + 1, len(lines)):
        if lines[end].rstrip() == fence:
            try:
                return block_text(lines[start + 1 : end], info), end
            except (ValueError, TypeError) as error:
                raise PageError(offset + start + 1, "block", f"is not JSON: {error}") from error
    raise PageError(offset + start + 1, "block", f"is not ended by a line with {fence}")

"""The pages that people read, taken apart: links, blocks of code, commands, tables, the card."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
NOT_RUN = "*(not run)*"
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CARD = re.compile(r"<!-- card -->\n(.*?)<!-- /card -->", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and whether the line before says that it is not run."""

    language: str
    text: str
    run: bool


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, in their order."""
    found = []
    for match in _FENCED.finditer(text):
        before = text[: match.start()].rstrip().rpartition("\n")[2]
        found.append(Block(match[1], match[2], NOT_RUN not in before))
    return found


def prose(text: str) -> str:
    """A page without its fenced blocks."""
    return _FENCED.sub("", text)


def commands(text: str, run: bool) -> list[tuple[str, ...]]:
    """The lines of the `sh` blocks that are run, or of those that are not, as words."""
    return [
        tuple(shlex.split(line))
        for block in blocks(text)
        if block.language == "sh" and block.run is run
        for line in block.text.splitlines()
        if line.strip()
    ]


def mentions(text: str) -> list[tuple[str, ...]]:
    """The `counterpoint` commands in the prose, as words."""
    return [tuple(shlex.split(code)) for code in inline(text) if code.startswith("counterpoint ")]


def inline(text: str) -> list[str]:
    """Return the texts between single backticks."""
    return re.findall(r"`([^`\n]+)`", prose(text))


def links(text: str) -> list[str]:
    """Return the targets of the links of a page that stay in the tree."""
    return [to for to in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", prose(text)) if "://" not in to]


def anchors(text: str) -> set[str]:
    """The names of a page's headings in links."""
    heads = re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def table(text: str, heading: str) -> list[tuple[str, ...]]:
    """The rows of the first table under a heading, a tuple of cells each, without backticks."""
    section = text.partition(f"\n{heading}\n")[2]
    found = re.search(r"^\|.*\|\n\|[-|]+\|\n((?:\|.*\|\n)+)", section, re.MULTILINE)
    assert found is not None, heading
    return [
        tuple(cell.strip().replace("`", "") for cell in row.strip("|").split(" | "))
        for row in found[1].strip().splitlines()
    ]


def card(text: str) -> list[str]:
    """The pieces of the card in a page; a line of its own that says … stands for what was left out."""
    found = _CARD.search(text)
    assert found is not None
    shown = _FENCED.search(found[1])
    assert shown is not None
    return re.split(r"^\s*…\n", shown[2], flags=re.MULTILINE)

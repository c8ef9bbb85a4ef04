"""Passages: quotable spans of a stored text, such as a step, a paragraph, a table row or a sentence."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from markdown_it import MarkdownIt

Kind = Literal["step", "item", "paragraph", "row"]

_MARKDOWN = MarkdownIt("commonmark").enable("table")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9`\"'(*])")
_LINE = re.compile(r"\r\n|\r|\n")
_MARK = re.compile(r"^(?:\d+[.)]|[-*+])\s+")
_BLANK = re.compile(r"\n\s*\n")
_SHINGLE_WORDS = 3
_SHORT = 8


@dataclass(frozen=True)
class Passage:
    """The span `text` from `start` to `end` (characters) of a larger text."""

    kind: Kind
    start: int
    end: int
    text: str


@lru_cache(maxsize=4_000)
def passages(text: str, markdown: bool = True) -> tuple[Passage, ...]:
    """Return the passages of a text in order.

    In markdown: steps of numbered lists, items, paragraphs and table rows, each with the code block after it, without
    headings. In other text: blocks between blank lines.
    """
    if not markdown:
        return tuple(_divided(text))
    starts = [0, *(line.end() for line in _LINE.finditer(text)), len(text)]
    spans: list[tuple[Kind, int, int]] = []
    lists: list[Kind] = []
    for token in _MARKDOWN.parse(text):
        match token.type:
            case "ordered_list_open":
                lists.append("step")
            case "bullet_list_open":
                lists.append("item")
            case "ordered_list_close" | "bullet_list_close":
                lists.pop()
            case "list_item_open" if len(lists) == 1 and token.map:
                spans.append((lists[0], token.map[0], token.map[1]))
            case "paragraph_open" if not lists and token.map:
                spans.append(("paragraph", token.map[0], token.map[1]))
            case "tr_open" if not lists and token.map:
                spans.append(("row", token.map[0], token.map[1]))
            case "thead_close" if not lists and spans:
                spans.pop()
            case "fence" | "code_block" if not lists and token.map:
                if spans:
                    kind, first, _ = spans.pop()
                    spans.append((kind, first, token.map[1]))
                else:
                    spans.append(("paragraph", token.map[0], token.map[1]))
            case _:
                pass
    return tuple(_trimmed(kind, text, starts[first], starts[last]) for kind, first, last in spans)


def sentences(passage: Passage) -> tuple[Passage, ...]:
    """Return the sentences of a passage. Steps, items and rows are not split."""
    if passage.kind != "paragraph" or "```" in passage.text:
        return (passage,)
    spans, at = [], 0
    for end in _SENTENCE_END.finditer(passage.text):
        spans.append((at, end.start()))
        at = end.end()
    spans.append((at, len(passage.text)))
    return tuple(
        Passage("paragraph", passage.start + start, passage.start + end, passage.text[start:end])
        for start, end in spans
    )


def is_same_text(first: str, second: str) -> bool:
    """Return whether two texts are the same except white space, case, list marks and small edits.

    At least 70 % of the three-word shingles of the shorter are in the longer; short texts must be equal.
    """
    one, other = _plain(first), _plain(second)
    if one == other:
        return True
    shorter, longer = sorted((_shingles(one), _shingles(other)), key=len)
    return len(shorter) >= _SHORT and len(shorter & longer) >= 0.7 * len(shorter)


@lru_cache(maxsize=4_000)
def _plain(text: str) -> str:
    return _MARK.sub("", " ".join(text.split())).casefold()


@lru_cache(maxsize=4_000)
def _shingles(plain: str) -> frozenset[tuple[str, ...]]:
    words = re.findall(r"\w+", plain)
    return frozenset(tuple(words[i : i + _SHINGLE_WORDS]) for i in range(len(words) - _SHINGLE_WORDS + 1))


def _trimmed(kind: Kind, text: str, start: int, end: int) -> Passage:
    body = text[start:end]
    start += len(body) - len(body.lstrip())
    return Passage(kind, start, start + len(body.strip()), body.strip())


def _divided(text: str) -> list[Passage]:
    edges = [0, *(edge for gap in _BLANK.finditer(text) for edge in gap.span()), len(text)]
    blocks = [_trimmed("paragraph", text, start, end) for start, end in zip(edges[::2], edges[1::2], strict=True)]
    return [block for block in blocks if block.text]

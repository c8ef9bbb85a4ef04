"""Documents to chunks: markdown by heading, Python by function and class, plain text by paragraph (row C1).

Pure. Whatever the input, the chunks of a text are in its order, do not overlap, and leave out nothing but white space;
`source[chunk.start:chunk.end] == chunk.text` holds for every one of them.
"""

import ast
import re
import threading
import warnings
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal, assert_never

from markdown_it import MarkdownIt

ContentType = Literal["markdown", "python", "text"]
MAX_CHARS = 1_000
MAX_TITLE_CHARS = 160
PYTHON_LIMIT_CHARS = 256 * 1024
"""Python's own parser stops every thread while it works: half a second for the densest source of this length."""

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_FRONT_MATTER = re.compile(r"\ufeff?---[ \t]*\r?\n(?=[\w-]+[ \t]*:)(?:.*\r?\n)*?(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)")
# Where a text that is too long is cut, best place first; the cut is after the match.
_CUTS = tuple(re.compile(cut) for cut in (r"\n[ \t]*\r?\n", r"\n", r"[.!?][\"')\]]*\s", r"\s"))
_WORD = re.compile(r"\S")
_MARKDOWN_LINE = re.compile(r"^(?:#{1,6} \S|```|~~~|\[.+\]: \S|\|.*\|[ \t]*$)", re.MULTILINE)
_PYTHON_LINE = re.compile(r"^(?:(?:async )?def \w+\(|class \w+[(:]|import \w|from [\w.]+ import |@\w)", re.MULTILINE)
_SUFFIXES: dict[str, ContentType] = {
    ".md": "markdown", ".markdown": "markdown", ".mdx": "markdown",
    ".py": "python", ".pyi": "python", ".pyw": "python",
    ".txt": "text", ".text": "text", ".log": "text", ".csv": "text", ".json": "text", ".yaml": "text", ".yml": "text",
}  # fmt: skip


@dataclass(frozen=True)
class Chunk:
    """A piece of a document. `start` and `end` are character offsets into it.

    `context` is what the piece alone does not say: the path of titles above it, or the class and signature it belongs
    to. The lexical leg reads it with the text; the dense leg reads the text alone.
    """

    text: str
    start: int
    end: int
    context: str


@dataclass(frozen=True)
class Chunked:
    """The chunks of a document and the type it was read as; `problem` says why that is not the type expected."""

    type: ContentType
    chunks: tuple[Chunk, ...]
    problem: str | None = None


@dataclass(frozen=True)
class _Section:
    """A stretch of the source with one context; `breaks` are good places to cut it, ascending, inside it."""

    start: int
    end: int
    context: str
    breaks: tuple[int, ...] = ()


def detect(name: str, source: str) -> ContentType:
    """The type of a document by the suffix of its name, and by its content where that says nothing."""
    suffix = PurePosixPath(name).suffix.lower()
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    if re.match(r"#!.*\bpython", source) or len(_PYTHON_LINE.findall(source)) >= 2:
        try:
            _parse(source)
        except ValueError:
            pass
        else:
            return "python"
    return "markdown" if not suffix and _MARKDOWN_LINE.search(source) else "text"


def chunk(source: str, type: ContentType, max_chars: int = MAX_CHARS) -> Chunked:
    """Cut a document into chunks of at most `max_chars` characters.

    Python that does not parse is cut as plain text, and `problem` says so.
    """
    match type:
        case "markdown":
            return Chunked("markdown", tuple(_chunks(source, _markdown(source), max_chars)))
        case "python":
            try:
                sections = _python(source, max_chars)
            except ValueError as error:
                text = chunk(source, "text", max_chars)
                return Chunked("text", text.chunks, f"not read as Python but as plain text: {error}")
            return Chunked("python", tuple(_chunks(source, sections, max_chars)))
        case "text":
            return Chunked("text", tuple(_chunks(source, [_Section(0, len(source), "")], max_chars)))
        case _:
            assert_never(type)


def _line_starts(source: str) -> list[int]:
    """Offset of each line, lines ending as Python and CommonMark see it, and the end of the source."""
    return [line.start() for line in _LINE.finditer(source)] + [len(source)]


def _short(title: str) -> str:
    return " ".join(title.split())[:MAX_TITLE_CHARS]


# Markdown


def _markdown(source: str) -> list[_Section]:
    """One section per heading, under the path of titles above it; a heading without text joins what follows it."""
    starts = _line_starts(source)
    front = _FRONT_MATTER.match(source)
    first_line = starts.index(front.end()) if front else 0
    parser = MarkdownIt("commonmark").enable("table").disable("inline")
    parsed = parser.parse(source[starts[first_line] :])
    blocks = [token for token in parsed if token.level == 0 or token.type == "inline"]

    def at(line: int) -> int:
        return starts[min(first_line + line, len(starts) - 1)]

    sections: list[_Section] = []
    path: list[tuple[int, str]] = []
    begin, context, breaks, empty = 0, "", list[int](), True

    def close(end: int) -> None:
        sections.append(_Section(begin, end, context, tuple(cut for cut in breaks if begin < cut < end)))

    for n, token in enumerate(blocks):
        if token.map is None or token.level or token.nesting < 0:
            continue
        here = at(token.map[0])
        if token.type != "heading_open":
            breaks.append(here)
            empty = False
            continue
        level = int(token.tag[1:])
        joined = empty and bool(path) and path[-1][0] < level
        path = [(above, title) for above, title in path if above < level] + [(level, _short(blocks[n + 1].content))]
        if not joined:
            close(here)
            begin, breaks = here, []
        context, empty = " > ".join(title for _, title in path if title), True
    close(len(source))
    return sections


# Python

_parsing = threading.Lock()


def _parse(source: str) -> ast.Module:
    """The syntax tree; raises `ValueError` with the reason where there is none."""
    if len(source) > PYTHON_LIMIT_CHARS:
        raise ValueError(f"longer than {PYTHON_LIMIT_CHARS} characters")
    try:
        # What is done with warnings is everybody's: two threads would put back each other's.
        with _parsing, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source.removeprefix("\ufeff"))
    except SyntaxError as error:
        raise ValueError(f"line {error.lineno}: {error.msg}") from error
    except (RecursionError, MemoryError) as error:
        raise ValueError("nested too deeply") from error


_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class _PythonSource:
    """A source with the offset of each of its lines."""

    text: str
    starts: list[int]
    max_chars: int

    def block(self, body: list[ast.stmt], start: int, end: int, context: str) -> Iterator[_Section]:
        """Sections of `text[start:end]`, whose statements are `body`: each definition one, what lies between them one.

        Comments and decorators belong to the definition below them.
        """
        begin, cursor, breaks = start, start, list[int]()
        for statement in body:
            finish = min(max(self._after(statement), cursor), end)
            if not isinstance(statement, _Definition):
                breaks += [cursor, *self._breaks(statement)]
                cursor = finish
                continue
            yield _Section(begin, cursor, context, tuple(breaks))
            yield from self._definition(statement, cursor, finish, context)
            begin, cursor, breaks = finish, finish, []
        yield _Section(begin, end, context, tuple(breaks))

    def _definition(self, node: _Definition, start: int, end: int, outer: str) -> Iterator[_Section]:
        """One section; of a class too long for one chunk, its head and each of its members."""
        context = f"{outer} > {self._signature(node)}" if outer else self._signature(node)
        if isinstance(node, ast.ClassDef) and end - start > self.max_chars:
            yield from self.block(node.body, start, end, context)
        else:
            yield _Section(start, end, context, tuple(self._breaks(node)))

    def _breaks(self, statement: ast.stmt) -> list[int]:
        """The beginnings of the lines on which the statements within this one begin."""
        nested = (child for child in ast.walk(statement) if isinstance(child, ast.stmt) and child is not statement)
        return sorted({self.starts[child.lineno - 1] for child in nested})

    def _after(self, statement: ast.stmt) -> int:
        return self.starts[statement.end_lineno or statement.lineno]

    def _signature(self, node: _Definition) -> str:
        """The line that defines it as it is written, on one line."""
        last = max(node.lineno, node.body[0].lineno - 1)
        return _short(self.text[self.starts[node.lineno - 1] : self.starts[last]]).removesuffix(":")


def _python(source: str, max_chars: int) -> list[_Section]:
    module = _parse(source)
    return list(_PythonSource(source, _line_starts(source), max_chars).block(module.body, 0, len(source), ""))


# Sections to chunks


def _chunks(source: str, sections: list[_Section], max_chars: int) -> Iterator[Chunk]:
    for section in sections:
        for start, end in _pieces(source, section, max_chars):
            yield Chunk(source[start:end], start, end, section.context)


def _pieces(source: str, section: _Section, max_chars: int) -> Iterator[tuple[int, int]]:
    """Spans of a section without the blank lines around them, each as long as `max_chars` allows."""
    start = _skip_blank(source, section.start, section.end)
    while start < section.end:
        cut = min(section.end, start + max_chars)
        if cut < section.end:
            cut = _cut(source, start, cut, section.breaks)
        length = len(source[start:cut].rstrip())
        if length:
            yield start, start + length
        start = _skip_blank(source, cut, section.end)


def _cut(source: str, start: int, limit: int, breaks: tuple[int, ...]) -> int:
    """Where to end the piece that begins at `start`: at the last good place in the second half before `limit`."""
    half = start + (limit - start + 1) // 2
    place = bisect_right(breaks, limit) - 1
    if place >= 0 and breaks[place] >= half:
        return breaks[place]
    for pattern in _CUTS:
        places = [found.end() for found in pattern.finditer(source, half, limit)]
        if places:
            return places[-1]
    return limit


def _skip_blank(source: str, start: int, end: int) -> int:
    """The beginning of the first line at or after `start` that is not blank, or `end`."""
    word = _WORD.search(source, start, end)
    if word is None:
        return end
    return max(start, source.rfind("\n", start, word.start()) + 1, source.rfind("\r", start, word.start()) + 1)

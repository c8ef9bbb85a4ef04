"""Markdown by heading: each section under the path of titles above it. In an FAQ a bold question is a heading."""

import re

from markdown_it import MarkdownIt

from counterpoint.memory.ingest.chunk.pieces import SourceSection, line_starts, short

_FRONT_MATTER = re.compile(r"\ufeff?---[ \t]*\r?\n(?=[\w-]+[ \t]*:)(?:[^\n]*\n)*?(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)")

_BOLD_QUESTION = re.compile(r"\*\*([^*\n]+\?)\*\*|__([^_\n]+\?)__")
_BELOW_HEADINGS = 7


def markdown(source: str) -> list[SourceSection]:
    """Return one section per heading or bold question, under the path of titles above it; a heading without text joins
    the next section."""
    starts = line_starts(source)
    front = _FRONT_MATTER.match(source)
    first_line = starts.index(front.end()) if front else 0
    parser = MarkdownIt("commonmark").enable("table").disable("inline")
    parsed = parser.parse(source[starts[first_line] :])
    blocks = [token for token in parsed if token.level == 0 or token.type == "inline"]

    def at(line: int) -> int:
        return starts[min(first_line + line, len(starts) - 1)]

    sections: list[SourceSection] = []
    path: list[tuple[int, str]] = []
    begin, context, breaks, empty = 0, "", list[int](), True

    def close(end: int) -> None:
        sections.append(SourceSection(begin, end, context, tuple(cut for cut in breaks if begin < cut < end)))

    for n, token in enumerate(blocks):
        if token.map is None or token.level or token.nesting < 0:
            continue
        here = at(token.map[0])
        title = blocks[n + 1].content if token.type in ("heading_open", "paragraph_open") else ""
        question = _BOLD_QUESTION.fullmatch(title.strip()) if token.type == "paragraph_open" else None
        if token.type != "heading_open" and question is None:
            breaks.append(here)
            empty = False
            continue
        level = _BELOW_HEADINGS if question else int(token.tag[1:])
        title = (question[1] or question[2]) if question else title
        joined = empty and bool(path) and path[-1][0] < level
        path = [(above, title) for above, title in path if above < level] + [(level, short(title))]
        if not joined:
            close(here)
            begin, breaks = here, []
        context, empty = " > ".join(title for _, title in path if title), True
    close(len(source))
    return sections

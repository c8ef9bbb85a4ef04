"""reStructuredText by heading: each section under the path of titles above it. A question that is a term of a
definition list is a heading.

The scanner is our own because docutils does not give the position of a section in the text.
"""

import re
from itertools import pairwise

from counterpoint.memory.ingest.chunk.pieces import SourceSection, line_starts, short

_QUESTION = "?"
"""The style of a question, which is below all headings."""
_BELOW_HEADINGS = 100
_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1+\s*")


def restructuredtext(source: str) -> list[SourceSection]:
    """Return one section per heading or question; a heading without text joins the next section. The level of an
    adornment follows from the order of first occurrence, as in the format."""
    starts = line_starts(source)
    lines = [source[start:end] for start, end in pairwise(starts)]
    sections: list[SourceSection] = []
    path: list[tuple[int, str]] = []
    styles: list[str] = []
    begin, context, after = 0, "", 0
    for n in range(1, len(lines)):
        style = _QUESTION if _is_question(lines, n - 1) else _heading(lines, n)
        if style is None:
            continue
        if style not in (*styles, _QUESTION):
            styles.append(style)
        level = _BELOW_HEADINGS if style == _QUESTION else styles.index(style)
        first = n - len(style)
        joined = bool(path) and path[-1][0] < level and not "".join(lines[after:first]).strip()
        path = [(above, title) for above, title in path if above < level] + [(level, short(lines[n - 1]))]
        if not joined:
            sections.append(SourceSection(begin, starts[first], context))
            begin = starts[first]
        context, after = " > ".join(title for _, title in path), n + (style != _QUESTION)
    sections.append(SourceSection(begin, len(source), context))
    return sections


def _is_question(lines: list[str], n: int) -> bool:
    """Return whether a line is a question whose answer is indented below it."""
    title, below = lines[n].rstrip(), lines[n + 1]
    after_blank = n == 0 or not lines[n - 1].strip() or _ADORNMENT.fullmatch(lines[n - 1]) is not None
    return (
        title.endswith("?") and not title[0].isspace() and after_blank and below[:1].isspace() and bool(below.strip())
    )


def _heading(lines: list[str], n: int) -> str | None:
    """Return the style of the heading whose last line is `n`: its adornment, twice if it also has one above."""
    adorned, title = _ADORNMENT.fullmatch(lines[n]), lines[n - 1]
    if adorned is None or not title.strip() or _ADORNMENT.fullmatch(title):
        return None
    above = lines[n - 2] if n >= 2 else ""
    if above.strip() and above.strip() == lines[n].strip() and len(above.strip()) >= len(title.strip()):
        return adorned[1] * 2
    fits = len(lines[n].strip()) >= min(len(title.strip()), 4) and not title[0].isspace()
    return adorned[1] if fits and not above.strip() else None

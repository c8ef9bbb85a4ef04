"""reStructuredText by heading: each section under the path of titles above it.

The scanner is our own because docutils does not give the position of a section in the text.
"""

import re
from itertools import pairwise

from counterpoint.memory.ingest.chunk.pieces import SourceSection, line_starts, short

_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1+\s*")


def restructuredtext(source: str) -> list[SourceSection]:
    """Return one section per heading; a heading without text joins the next section. The level of an adornment follows
    from the order of first occurrence, as in the format."""
    starts = line_starts(source)
    lines = [source[start:end] for start, end in pairwise(starts)]
    sections: list[SourceSection] = []
    path: list[tuple[int, str]] = []
    styles: list[str] = []
    begin, context, after = 0, "", 0
    for n in range(1, len(lines)):
        style = _heading(lines, n)
        if style is None:
            continue
        if style not in styles:
            styles.append(style)
        level = styles.index(style)
        first = n - len(style)
        joined = bool(path) and path[-1][0] < level and not "".join(lines[after:first]).strip()
        path = [(above, title) for above, title in path if above < level] + [(level, short(lines[n - 1]))]
        if not joined:
            sections.append(SourceSection(begin, starts[first], context))
            begin = starts[first]
        context, after = " > ".join(title for _, title in path), n + 1
    sections.append(SourceSection(begin, len(source), context))
    return sections


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

"""Conversations by turn: the text of each, with its time, its speaker and its neighbouring turns."""

from collections.abc import Iterator, Sequence

from counterpoint.memory.ingest.chunk.pieces import SourceSection
from counterpoint.proto.conversation import TURN

AROUND_CHARS = 300
STEPS = 2
"""Number of turns before and after a turn in its surroundings."""


def conversation(source: str) -> Iterator[SourceSection]:
    """Return one section per turn, of its text alone; its context is `<at> | <speaker>`.

    The speaker is not part of the section, so that the text can be quoted verbatim. Text before the first turn is a
    section without a context.
    """
    heads = list(TURN.finditer(source))
    ends = [*(head.start() for head in heads[1:]), len(source)]
    lines = [_line(source[head.end() : end]) for head, end in zip(heads, ends, strict=True)]
    yield SourceSection(0, heads[0].start() if heads else len(source), "")
    for n, (head, end) in enumerate(zip(heads, ends, strict=True)):
        speaker = _line(head["speaker"])
        context = " | ".join(part for part in (_line(head["at"]), speaker) if part)
        yield SourceSection(head.end(), end, context, speaker=speaker, around=_around(lines, n))


def _around(lines: Sequence[str], n: int) -> tuple[str, ...]:
    """Return the surroundings of a turn at distance one, then two: the end of the one before, the beginning of the
    one after."""
    steps = []
    for step in range(1, STEPS + 1):
        before = _last(lines[n - step]) if n >= step else ""
        after = _first(lines[n + step]) if n + step < len(lines) else ""
        steps.append(" ".join(part for part in (before, after) if part))
    while steps and not steps[-1]:
        steps.pop()
    return tuple(steps)


def _line(part: str | None) -> str:
    return " ".join((part or "").split())


def _last(text: str) -> str:
    """Return the end of a turn, because the next one answers it; it begins with a whole word."""
    if len(text) <= AROUND_CHARS:
        return text
    return text[-AROUND_CHARS:].partition(" ")[2] or text[-AROUND_CHARS:]


def _first(text: str) -> str:
    """Return the beginning of a turn; it ends with a whole word."""
    if len(text) <= AROUND_CHARS:
        return text
    return text[:AROUND_CHARS].rpartition(" ")[0] or text[:AROUND_CHARS]

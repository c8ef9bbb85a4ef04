"""Conversations by turn: the bare text of each, with its time, its speaker and the turn before it as context."""

from collections.abc import Iterator

from counterpoint.memory.retrieval.chunk.pieces import Section
from counterpoint.proto.conversation import TURN

PREVIOUS_CHARS = 300


def conversation(source: str) -> Iterator[Section]:
    """One section a turn, of its text alone; its context is `<at> | <speaker> | <the end of the turn before>`.

    Who speaks is no part of the section: it is in the context, and so what was said can be quoted as it was said. What
    stands before the first turn is a section without a context.
    """
    heads = list(TURN.finditer(source))
    yield Section(0, heads[0].start() if heads else len(source), "")
    previous = ""
    for head, end in zip(heads, [*(head.start() for head in heads[1:]), len(source)], strict=True):
        said = (head["at"], head["speaker"], previous)
        yield Section(head.end(), end, " | ".join(part for part in map(_line, said) if part))
        previous = _last(source[head.end() : end])


def _line(part: str | None) -> str:
    return " ".join((part or "").split())


def _last(text: str) -> str:
    """The end of a turn, for it is what the next one answers; from the beginning of a word."""
    text = _line(text)
    if len(text) <= PREVIOUS_CHARS:
        return text
    return text[-PREVIOUS_CHARS:].partition(" ")[2] or text[-PREVIOUS_CHARS:]

"""A conversation as one text, and its turns found again in that text alone."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

SPEAKER_CHARS = 80
UNKNOWN = "unknown"

_REDACTED = r"\[redacted:[\w-]+\]"
TURN = re.compile(
    rf"^(?:\[(?P<at>(?:{_REDACTED}|[^\[\]\n])*)\] )?"
    rf"(?P<speaker>(?:{_REDACTED}|[^\s\[\]:])(?:{_REDACTED}|[^\n\[\]:]){{0,{SPEAKER_CHARS - 1}}}):(?: |(?=\n|\Z))",
    re.MULTILINE,
)
"""The head of a turn: `at` where it has one, and `speaker`. What is redacted in one of them leaves it a head."""

_COULD_BE_A_TURN = re.compile(r"(?<=\n)(?=\S[^\n]*:)")


@dataclass(frozen=True, slots=True)
class Turn:
    """What one said: `at` is the time as it was written, where it is known."""

    speaker: str
    text: str
    at: str | None = None


def transcript(turns: Iterable[Turn]) -> str:
    """The text of a conversation: every turn begins on a line of its own, `[<at>] <speaker>: <text>`.

    Without a time it begins with the speaker. A line within a turn that begins in the first column and holds a colon
    gets one space before it, also where it is no head: nothing that is redacted in it makes it one.
    """
    return "\n".join(f"{_head(turn)}: {_COULD_BE_A_TURN.sub(' ', turn.text)}".rstrip(" ") for turn in turns)


def _head(turn: Turn) -> str:
    speaker = _name(turn.speaker).replace(":", "-")[:SPEAKER_CHARS].rstrip() or UNKNOWN
    at = _name(turn.at or "")
    return f"[{at}] {speaker}" if at else speaker


def _name(value: str) -> str:
    return " ".join(value.split()).replace("[", "(").replace("]", ")")

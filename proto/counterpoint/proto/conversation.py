"""A conversation as plain text from which its turns can be parsed again."""

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
"""The head of a turn: an optional `at`, and `speaker`. Either may contain redactions."""

_COULD_BE_A_TURN = re.compile(r"(?<=\n)(?=\S[^\n]*:)")


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a conversation; `at` is the time as written, if known."""

    speaker: str
    text: str
    at: str | None = None


def transcript(turns: Iterable[Turn]) -> str:
    """Return the text of a conversation: each turn starts a line, `[<at>] <speaker>: <text>`; `at` is optional.

    A line within a turn that has a colon and no indentation is indented by one space, so that it cannot be parsed as a
    head, not even after redaction.
    """
    return "\n".join(f"{_head(turn)}: {_COULD_BE_A_TURN.sub(' ', turn.text)}".rstrip(" ") for turn in turns)


def _head(turn: Turn) -> str:
    speaker = _name(turn.speaker).replace(":", "-")[:SPEAKER_CHARS].rstrip() or UNKNOWN
    at = _name(turn.at or "")
    return f"[{at}] {speaker}" if at else speaker


def _name(value: str) -> str:
    return " ".join(value.split()).replace("[", "(").replace("]", ")")

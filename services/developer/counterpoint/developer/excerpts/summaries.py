"""Summaries: a procedure in one line, from its headings and the beginnings of its steps."""

import re
import textwrap
from collections.abc import Sequence

LIMIT_CHARS = 120
_STEP_CHARS = 60
_MARK = re.compile(
    r"\s*(?:#{1,6}\s+)?(?:(?i:step|schritt|phase)\s+\d{1,2}\s?[-–—.:)]|(?:\d{1,3}|[a-z]|#)[.)]|[-*+•])\s+"
)
_CLAUSE = re.compile(r"(?:[.:;,](?=\s|$)|\s(?:[-–—](?=\s|$)|\()|\n)")
_CONDITION = re.compile(
    r"(?:if|when|once|unless|until|in case|after|before|for|wenn|falls|sobald|solange|ist|sind|nach|vor|bei)\b"
    r"[^,.:;\n]*,\s",
    re.IGNORECASE,
)
"""A condition up to its comma, after which stands the act."""
_CUT = " …"


def summary_of(headings: Sequence[str], steps: Sequence[str]) -> str | None:
    """Return the last heading with as many first clauses of steps as fit into `LIMIT_CHARS`; without steps, all
    headings from the title down. None where there is neither."""
    named = [flat for heading in headings if (flat := " ".join(heading.split()))]
    clauses = [clause for step in steps if (clause := _beginning(step))]
    if not clauses:
        return _cut(": ".join(named), LIMIT_CHARS) if named else None
    summary = _cut(f"{named[-1]}: {clauses[0]}" if named else clauses[0], LIMIT_CHARS)
    for clause in clauses[1:]:
        if len(summary) + len(clause) + 2 > LIMIT_CHARS:
            break
        summary = f"{summary}; {clause}"
    return summary


def _beginning(step: str) -> str:
    """Return the first clause of a step, without its number, with the condition before it."""
    body = (step[mark.end() :] if (mark := _MARK.match(step)) else step).strip()
    condition = _CONDITION.match(body)
    begin = condition.end() if condition else 0
    return _cut(body[:begin] + _CLAUSE.split(body[begin:], maxsplit=1)[0], _STEP_CHARS)


def _cut(text: str, limit: int) -> str:
    return textwrap.shorten(text, limit, placeholder=_CUT)

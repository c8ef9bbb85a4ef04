"""Summaries: a procedure in one line, from its headings and the beginnings of its steps."""

import re
import textwrap
from collections.abc import Sequence

LIMIT_CHARS = 120
_STEP_CHARS = 60
_MARK = re.compile(r"\s*(?:(?:\d{1,3}|[a-z]|#)[.)]|[-*+•])\s+")
_CLAUSE = re.compile(r"(?:[.:;,](?=\s|$)|\s[-–—(]|\n)")
_CUT = " …"


def summary_of(headings: Sequence[str], steps: Sequence[str]) -> str | None:
    """Return the last heading with as many first clauses of steps as fit into `LIMIT_CHARS`; without steps, all
    headings from the title down. None where there is neither."""
    named = [flat for heading in headings if (flat := " ".join(heading.split()))]
    acts = [act for step in steps if (act := _beginning(step))]
    if not acts:
        return _cut(": ".join(named), LIMIT_CHARS) if named else None
    said = _cut(f"{named[-1]}: {acts[0]}" if named else acts[0], LIMIT_CHARS)
    for act in acts[1:]:
        if len(said) + len(act) + 2 > LIMIT_CHARS:
            break
        said = f"{said}; {act}"
    return said


def _beginning(step: str) -> str:
    """Return the first clause of a step, without its number."""
    body = _MARK.sub("", step, count=1) if _MARK.match(step) else step
    return _cut(_CLAUSE.split(body.strip(), maxsplit=1)[0], _STEP_CHARS)


def _cut(text: str, limit: int) -> str:
    return textwrap.shorten(text, limit, placeholder=_CUT)

"""Where a question is looked up, by rules, and what it is about when it follows on another (rows C3, C7). Pure."""

import re
from collections.abc import Sequence

from counterpoint.developer.rag.run import Asked, Route
from counterpoint.developer.words import content_words

EARLIER = 3
"""Questions of the session before this one that may say what it is about."""
_FEW = 6

_OUTSIDE = re.compile(
    r"\b(?:(?:latest|newest) (?:version|release)|released (?:today|yesterday|this week)|news|CVE-\d{4}-\d+"
    r"|on the (?:web|internet)|online)\b",
    re.IGNORECASE,
)
_POINTS_BACK = re.compile(
    r"^(?:and|but|so|then|what about|how about|why not|who else)\b"
    r"|\b(?:it|its|they|them|their|that|this|those|these|he|she|him|her|there|then|the same|one)\b",
    re.IGNORECASE,
)
_ASKED = re.compile(r"^question: ")


def route(question: str, web: bool) -> Route:
    """By the words of a question. `web`: a search of the web is configured."""
    if not content_words(question):
        return Route(mode="vector", reason="no word of it tells texts apart, so it is looked up by meaning alone")
    outside = _OUTSIDE.search(question)
    if outside is None:
        return Route(mode="hybrid", reason="looked up in memory by words and by meaning")
    if web:
        return Route(
            mode="web", reason=f"{outside[0]!r} is about the world outside: memory, and pages of the web as leads"
        )
    return Route(
        mode="hybrid",
        reason=f"{outside[0]!r} is about the world outside, but web_unavailable: no search is configured; memory alone",
    )


def asked(question: str, earlier: Sequence[str]) -> Asked:
    """What is looked for first. A question that points back is looked up together with the last one before it."""
    if not earlier or not follows(question):
        return Asked(text=question)
    return Asked(text=question, also=(f"{earlier[-1]} {question}",), why=f"it follows on: {earlier[-1]}")


def follows(question: str) -> bool:
    """Whether a question cannot be understood alone: it is short, and points back."""
    return len(content_words(question)) <= _FEW and _POINTS_BACK.search(question.strip()) is not None


def earlier(summary: str, question: str) -> tuple[str, ...]:
    """The questions of a session before this one, oldest first, as its summary has them."""
    lines = [_ASKED.sub("", line) for line in summary.splitlines() if _ASKED.match(line)]
    this = " ".join(question.split())
    while lines and this.startswith(lines[-1]):
        lines.pop()
    return tuple(lines[-EARLIER:])

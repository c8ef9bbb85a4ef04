"""Routes of questions by rules, and the resolution of follow-up questions. Pure functions."""

import hashlib
import re
from collections.abc import Sequence

from counterpoint.developer.evidence.search_query import QUERY_CHARS, SearchQuery
from counterpoint.developer.language.words import content_words
from counterpoint.developer.rag.run import Route, Run
from counterpoint.proto.tasks import TaskDelegated

EARLIER = 3
"""Maximum number of earlier questions of the session in a query."""
_FEW = 6

_WORD = re.compile(r"\w+")
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
_TURN = re.compile(r"^\w+: ")
_LINE_CHARS = 200
"""Length of a question in the summary of a session."""


def route(question: str) -> Route:
    """Return the route of a question by its words."""
    if not content_words(question):
        return Route(mode="vector", reason="no word distinguishes texts, so the search is by meaning alone")
    outside = _OUTSIDE.search(question)
    if outside is None:
        return Route(mode="hybrid", reason="search in memory by words and by meaning")
    return Route(
        mode="web", reason=f"{outside[0]!r} is about the outside world: search in memory, and web pages as leads"
    )


WEB_CHARS = 400
"""Maximum characters of a search of the web."""


def without_permit(message: TaskDelegated, run: Run) -> Run | None:
    """Return the run without a search of the web, if the policy refuses it or it has yet to be approved."""
    query = run.meant[:WEB_CHARS]
    if message.web == "refuse":
        return run.with_notes("web_unavailable: the policy of this project refuses searches of the web")
    if message.web == "ask" and query != message.permitted_search:
        asked = run.model_copy(update={"wanted_search": query})
        return asked.with_notes("web_unavailable: a search of the web needs an approval")
    return None


def available_route(route: Route, web: bool) -> Route:
    """Return the route, or a substitute without web search."""
    if route.mode != "web" or web:
        return route
    reason = f"{route.reason}; web_unavailable: no web search is configured, so memory alone"
    return route.model_copy(update={"mode": "hybrid", "reason": reason})


def words_key(question: str) -> str:
    """Return an id of a question's words, independent of order, case and punctuation."""
    words = sorted(set(_WORD.findall(question.casefold())))
    return hashlib.sha256(" ".join(words).encode()).hexdigest()[:32]


def search_query_of(question: str, earlier: Sequence[str]) -> SearchQuery:
    """Return the first query. A follow-up question is joined to the questions before it, back to a self-contained
    one."""
    if not earlier or not follows_on(question):
        return SearchQuery(text=question[:QUERY_CHARS])
    turns: list[str] = []
    for turn in reversed(earlier[-EARLIER:]):
        turns.insert(0, turn)
        if not follows_on(turn):
            break
    return SearchQuery(
        text=" ".join([*turns, question])[:QUERY_CHARS], also=(question,), why=f"follow-up question: {turns[0]}"
    )


def follows_on(question: str) -> bool:
    """Return whether a question is a follow-up: short and with a back reference."""
    return len(content_words(question)) <= _FEW and _POINTS_BACK.search(question.strip()) is not None


def earlier_questions(summary: str, question: str) -> tuple[str, ...]:
    """Return the questions of a session before this one, oldest first, from its summary. Later turns are left out."""
    turns = [_TURN.sub("", line) for line in summary.splitlines()]
    this = " ".join(question.split())[:_LINE_CHARS]
    before = turns[: len(turns) - 1 - turns[::-1].index(this)] if this in turns else turns
    return tuple(turn for turn in before if turn != this)[-EARLIER:]

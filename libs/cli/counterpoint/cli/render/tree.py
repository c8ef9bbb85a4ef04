"""The line of a task as a tree of actions. Pure."""

import heapq
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from counterpoint.proto.decisions import Confidence, ConfidenceTerms, DecisionMade, Source
from counterpoint.proto.line import Action

LINE_CHARS = 240
"""Maximum length of a text; longer ones are cut. JSON is complete."""
LEAST_CHARS = 20
"""Minimum width of text, at any depth."""


def draw(line: Mapping[str, Any], width: int | None = None) -> str:
    """Return the tree of a line from HTTP: its actions, their decisions, and the names of their sources.

    With a `width` longer lines are wrapped inside the tree.
    """
    decisions = (DecisionMade.model_validate(decision) for decision in line.get("decisions", ()))
    confidences = {decision.decision_id: decision.confidence for decision in decisions if decision.confidence}
    names = {(source["store"], source["id"]): str(source["name"]) for source in line.get("sources", ())}
    actions = [Action.model_validate(action) for action in line["items"]]
    return text(actions, names, confidences, width) or "no actions yet"


def in_order(actions: Sequence[Action]) -> list[Action]:
    """Return the actions in the order of the record, but after all that led to them."""
    known = {action.action_id for action in actions}
    waiting = {action.action_id: {before for before in action.after if before in known} for action in actions}
    followers: dict[str, list[Action]] = {}
    for action in actions:
        for before in waiting[action.action_id]:
            followers.setdefault(before, []).append(action)
    place = {action.action_id: (action.seq or 0, number) for number, action in enumerate(actions)}
    ready = [(place[action.action_id], action) for action in actions if not waiting[action.action_id]]
    heapq.heapify(ready)
    ordered: list[Action] = []
    while ready:
        _, action = heapq.heappop(ready)
        ordered.append(action)
        for follower in followers.get(action.action_id, ()):
            waiting[follower.action_id].discard(action.action_id)
            if not waiting[follower.action_id]:
                heapq.heappush(ready, (place[follower.action_id], follower))
    return ordered


def text(
    actions: Sequence[Action],
    names: Mapping[tuple[str, str], str],
    confidences: Mapping[str, Confidence],
    width: int | None = None,
) -> str:
    """Return the tree as lines, numbered in order.

    An action hangs below the latest of those that led to it and names the others, and those that it was made beside. A
    single follower stays in its column; where the line branches, each branch but the last is indented. `names` are the
    names of items by store and id, `confidences` those of decisions by id.
    """
    ordered = in_order(actions)
    number = {action.action_id: place for place, action in enumerate(ordered, 1)}
    led = {
        action.action_id: sorted(number[before] for before in action.after if before in number) for action in ordered
    }
    below: dict[int, list[Action]] = {}
    for action in ordered:
        below.setdefault(max(led[action.action_id], default=0), []).append(action)

    def lines(action: Action, indent: str, above: tuple[Source, ...]) -> Iterator[str]:
        while True:
            place = number[action.action_id]
            followers = below.get(place, [])
            others = led[action.action_id][:-1]
            also = f"  (also after {', '.join(map(str, others))})" if others else ""
            beside = sorted(number[other] for other in action.coordinates_with if other in number)
            also += f"  (beside {', '.join(map(str, beside))})" if beside else ""
            yield f"{indent}{place:>3} {action.agent}: {action.kind}{also}"
            edge = f"{indent}    {'│' if followers else ' '} "
            for line in _action_lines(action, names, confidences.get(action.decision_id or ""), above):
                yield from (edge + part for part in _parts(line, width and width - len(edge)))
            above = action.sources
            for follower in followers[:-1]:
                yield f"{indent}    ├──╮"
                yield from lines(follower, indent + "    │  ", above)
            if not followers:
                return
            action = followers[-1]

    return "\n".join(line.rstrip() for root in below.get(0, []) for line in lines(root, "", ()))


def _action_lines(
    action: Action,
    names: Mapping[tuple[str, str], str],
    confidence: Confidence | None,
    above: tuple[Source, ...],
) -> Iterator[str]:
    yield from map(_short, action.reasoning.splitlines())
    if action.result:
        lines = map(_short, action.result.splitlines())
        yield from (("→ " if place == 0 else "  ") + line for place, line in enumerate(lines))
    if confidence and f"{confidence.score:.2f}" not in action.reasoning:
        yield f"confidence {confidence.score:.2f} ({confidence.band}){_terms(confidence.terms)}"
    if action.sources:
        same = action.sources == above
        yield "on the same basis" if same else f"on the basis of {', '.join(_basis(action.sources, names))}"


def _parts(line: str, width: int | None) -> list[str]:
    """Return a line in parts that fit; the parts of an indented line are indented below its first word."""
    if width is None:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.wrap(line, max(width, LEAST_CHARS), subsequent_indent=indent) or [line]


def _terms(terms: ConfidenceTerms | None) -> str:
    if terms is None:
        return ""
    exists = terms.provider_exists
    provider = exists if isinstance(exists, str) else ("yes" if exists else "no")
    success = "yes" if terms.similar_dag else "no"
    return f": similarity {terms.rag_similarity:.2f}, {terms.rag_hits} sources, provider {provider}, success {success}"


def _short(line: str) -> str:
    return line if len(line) <= LINE_CHARS else f"{line[: LINE_CHARS - 1]}…"


def _basis(sources: Sequence[Source], names: Mapping[tuple[str, str], str]) -> Iterator[str]:
    """Return the named sources, then the number of others in each store."""
    known = [names[source.store, source.id] for source in sources if (source.store, source.id) in names]
    yield from dict.fromkeys(known)
    rest = Counter(source.store for source in sources if (source.store, source.id) not in names)
    more = "more of " if known else ""
    yield from (f"{count} {more}{store}" for store, count in rest.items())

"""Comparison of two commits of one step: their messages, their records and their timers. Pure functions."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.memory import Commit, Outgoing, RecordsChanged, StepRecord
from counterpoint.proto.messages import Shape

_ABSENT = "absent"
_FIRST = ("messages", DecisionMade.TYPE, "data", "decision", "reasoning")
"""Fields that are compared before others, since they say most."""


class Difference(Shape):
    """The first field in which two commits differ, with both values."""

    at: str
    recorded: Any
    replayed: Any


class DecisionText(Shape):
    """A decision in short."""

    type: str
    decision: str
    confidence: float | None = None


def first_difference(record: StepRecord, commit: Commit) -> Difference | None:
    """Return the first difference between a step and the commit that its delivery made again; None without any.

    Decisions are compared first. Memory adds the record of each decision and the announcement of the commit.
    """
    recorded = _effects(record.messages, record.writes, record.cancel_timers)
    replayed = _effects(commit.messages, commit.writes, commit.cancel_timers)
    found = next(_differences("", recorded, replayed), None)
    return found and Difference(at=found[0], recorded=found[1], replayed=found[2])


def decisions(messages: Iterable[Outgoing]) -> tuple[DecisionText, ...]:
    """Return the decisions among some messages."""
    made = (DecisionMade.model_validate(each.data) for each in messages if each.type == DecisionMade.TYPE)
    return tuple(
        DecisionText(
            type=each.decision_type,
            decision=each.decision,
            confidence=each.confidence.score if each.confidence else None,
        )
        for each in made
    )


def _effects(messages: Iterable[Outgoing], writes: Iterable[Any], cancelled: Iterable[str]) -> dict[str, Any]:
    by_type: dict[str, list[Any]] = {DecisionMade.TYPE: []}
    for each in messages:
        if each.type != RecordsChanged.TYPE:
            sent = {"data": each.data, "due_at": each.due_at and each.due_at.isoformat(), "timer": each.timer}
            by_type.setdefault(each.type, []).append(sent)
    decisions = {(DecisionMade.TYPE, each["data"]["decision_id"]) for each in by_type[DecisionMade.TYPE]}
    records = {
        f"{each.store}/{each.id}": {"body": _timeless(each.body), "expect": each.expect}
        for each in writes
        if each.store != "decisions" or (DecisionMade.TYPE, each.id) not in decisions
    }
    return {"messages": by_type, "records": records, "cancelled timers": sorted(cancelled)}


def _timeless(body: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return a body without the time that a run has taken so far."""
    return body and {name: value for name, value in body.items() if name != "spent_s"}


def _differences(at: str, recorded: Any, replayed: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the places at which two JSON values differ, with both values."""
    match recorded, replayed:
        case Mapping(), Mapping():
            for name in sorted({*recorded, *replayed}, key=_rank):
                place = f"{at}.{name}" if at else str(name)
                yield from _differences(place, recorded.get(name, _ABSENT), replayed.get(name, _ABSENT))
        case list(), list():
            for n in range(max(len(recorded), len(replayed))):
                pair = (each[n] if n < len(each) else _ABSENT for each in (recorded, replayed))
                yield from _differences(f"{at}[{n}]", *pair)
        case _ if recorded != replayed:
            yield at, recorded, replayed


def _rank(name: str) -> tuple[int, str]:
    return (_FIRST.index(name) if name in _FIRST else len(_FIRST), name)

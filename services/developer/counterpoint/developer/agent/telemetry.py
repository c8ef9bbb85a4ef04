"""Metrics of investigations."""

from prometheus_client import Counter

from counterpoint.developer.agent.investigation import Investigation

ENDINGS = Counter("counterpoint_investigations_total", "Investigations by a model, by their end", ["ending"])
TURNS = Counter("counterpoint_investigation_turns_total", "Turns of a model, by whether they could be used", ["usable"])


def observe(before: Investigation, after: Investigation) -> None:
    """Count a step."""
    for turn in after.turns[len(before.turns) :]:
        TURNS.labels("no" if turn.problem else "yes").inc()
    if after.ending is not None:
        ENDINGS.labels(after.ending).inc()

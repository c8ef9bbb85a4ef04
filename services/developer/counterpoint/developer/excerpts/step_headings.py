"""Step headings: procedures whose steps are headings with consecutive numbers, joined to one section."""

import re
from collections.abc import Sequence
from dataclasses import replace

from counterpoint.developer.excerpts.relevance import Hit
from counterpoint.developer.excerpts.units import Unit

FITTING, LONGEST = 1_300, 3_000
"""Maximum characters of a procedure that is joined, and of one whose steps have no numbered lists. Longer ones are
mostly chapters."""
_REFERENCE = 25
_LISTED = re.compile(r"^\s{0,3}\d{1,2}[.)]\s+\S(?!.*\n[-=*~^]{3})", re.MULTILINE)
_NUMBERED = re.compile(r"(?:#{1,6}\s+)?(?:(?:step|schritt|phase)\s+(\d{1,2})\b|(\d{1,2})[.)]\s)", re.IGNORECASE)


def join_steps(runs: Sequence[Sequence[Hit]]) -> list[tuple[Hit, ...]]:
    """Return runs of passages under the same headings, with those under consecutive step headings joined to one, and
    the passages directly above the first step with them, as far as they fit."""
    joined: list[tuple[Hit, ...]] = []
    at = 0
    while at < len(runs):
        end = at + 1
        while end < len(runs) and _is_next_step(runs[end - 1][-1], runs[end][0]):
            end += 1
        steps = tuple(hit for run in runs[at:end] for hit in run)
        if end == at + 1 or not _is_procedure(steps):
            joined += map(tuple, runs[at:end])
        elif joined and _introduces(joined[-1][-1], steps[0]) and _size((*joined[-1], *steps)) <= FITTING:
            joined[-1] = (*joined[-1], *steps)
        else:
            joined.append(steps)
        at = end
    return joined


def step_units(found: Sequence[Unit]) -> tuple[Unit, ...]:
    """Return the units of a joined procedure: its step headings are steps, and all below them is nested."""
    made, below = list[Unit](), False
    for unit in found:
        step = unit.kind == "heading" and _NUMBERED.match(unit.text) is not None
        made.append(replace(unit, kind="step", indent=0) if step else replace(unit, indent=unit.indent + below))
        below = below or step
    return tuple(made)


def are_consecutive(before: Hit, hit: Hit) -> bool:
    """Return whether a passage of a document follows directly on another."""
    return (
        before.source == hit.source
        and before.item.id.rpartition("-")[0] == hit.item.id.rpartition("-")[0]
        and _number(hit) == _number(before) + 1
        and hit.start >= before.start + len(before.text)
    )


def _is_next_step(before: Hit, hit: Hit) -> bool:
    above, number = _step(before)
    return number is not None and _step(hit) == (above, number + 1) and are_consecutive(before, hit)


def _is_procedure(steps: Sequence[Hit]) -> bool:
    size = _size(steps)
    return size <= FITTING or (size <= LONGEST and not any(_LISTED.search(hit.text) for hit in steps))


def _introduces(before: Hit, hit: Hit) -> bool:
    return before.context == _step(hit)[0] and are_consecutive(before, hit)


def _step(hit: Hit) -> tuple[str, int | None]:
    """Return the headings above the last one, and the number of the last one."""
    above, _, last = hit.context.rpartition(" > ")
    match = _NUMBERED.match(last)
    return above, int(match[1] or match[2]) if match else None


def _size(steps: Sequence[Hit]) -> int:
    return sum(len(hit.text) + _REFERENCE for hit in steps)


def _number(hit: Hit) -> int:
    number = hit.item.id.rpartition("-")[2]
    return int(number) if number.isdecimal() else -1

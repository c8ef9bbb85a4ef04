"""Grouping of failures: which repeat a part's failure, which follow from others, and which are one incident.

A pure function of the set of failures and of the downstream relation, so its groups do not depend on the order or the
repetition of events.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from counterpoint.lineage.incidents.failures import FailedRun

IsDownstream = Callable[[str, str], bool]
"""Whether the second job is downstream of the first; jobs are given as `Node.ref`."""
UnitKey = tuple[str, tuple[int, ...], str, str, str]
"""Job, index of a mapped task if it has one, flow, DAG run, and the time it was resolved."""


def _weight(failed: FailedRun) -> tuple[int, bool, bool, datetime, str]:
    """Sort key: the greatest failure represents its unit."""
    return failed.try_number or 0, failed.told, not failed.statement, failed.at, failed.run_id


@dataclass(frozen=True, slots=True)
class FailedUnit:
    """The failed tries of one job in one flow that are unresolved, or resolved at the same time."""

    key: UnitKey
    tries: tuple[FailedRun, ...]
    until: datetime | None

    @property
    def job(self) -> str:
        """The job, as `Node.ref`."""
        return self.tries[0].job

    @property
    def flow(self) -> str:
        """Short hash of the flow and the DAG run."""
        return flow_hash(self.key[2], self.key[3])

    @property
    def first(self) -> datetime:
        """Time of the earliest failure."""
        return min(failed.at for failed in self.tries)

    @property
    def latest(self) -> FailedRun:
        """The failure that represents the unit."""
        return max(self.tries, key=_weight)

    @property
    def count(self) -> int:
        """Number of tries, as far as reported; statements of one run are one try."""
        numbers = [failed.try_number for failed in self.tries if failed.try_number is not None]
        return max(numbers, default=max(1, sum(not failed.statement for failed in self.tries)))

    @property
    def passed(self) -> bool:
        """Whether a retry in the same flow resolves it; then no other failure follows from it."""
        return all(failed.passed for failed in self.tries)

    @property
    def waits(self) -> bool:
        """Whether a retry, or the failure of a part, is still expected."""
        latest = self.latest
        partial = all(failed.statement for failed in self.tries)
        return (latest.retries_left or latest.whole or partial) and not latest.waited


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """One incident: its units, the failures of parent jobs that repeat them, and the failures that follow from it.

    Repetitions of failures that follow are in `affected`.
    """

    units: tuple[FailedUnit, ...]
    echoes: tuple[FailedRun, ...] = ()
    affected: tuple[FailedRun, ...] = ()

    @property
    def origin(self) -> FailedRun:
        """The failure that represents the incident: the latest with an error."""
        latest = [unit.latest for unit in self.units]
        return max(latest, key=lambda failed: (failed.told, not failed.statement, failed.at, failed.run_id))

    @property
    def first(self) -> datetime:
        """Time of the earliest failure."""
        return min(unit.first for unit in self.units)

    @property
    def roots(self) -> tuple[FailedRun, ...]:
        """The failures of its own units, earliest first."""
        return tuple(
            sorted((first for unit in self.units for first in unit.tries), key=lambda first: (first.at, first.run_id))
        )

    @property
    def waits(self) -> bool:
        """Whether the incident still waits before it is opened."""
        return all(unit.waits for unit in self.units) and not any(echo.waited for echo in self.echoes)


def flow_hash(flow: str, dag_run: str) -> str:
    """Return a short hash of a flow and its DAG run."""
    return hashlib.sha256(f"{flow}{dag_run}".encode()).hexdigest()[:8]


def flow_hashes(failures: Collection[FailedRun]) -> dict[str, str]:
    """Return the short hash of the flow of each failed run."""
    flows = _flows(failures)
    return {failed.run_id: flow_hash(flows[failed.run_id], failed.dag_run_id or "") for failed in failures}


_Name = tuple[str, str, str]
"""Job, signature, and the key of a resolved unit."""


def group_failures(failures: Collection[FailedRun], is_downstream: IsDownstream) -> tuple[FailureGroup, ...]:
    """Group all failures, earliest first. A group is either unresolved or resolved as a whole."""
    flows = _flows(failures)
    echoes = _echoes(failures, flows)
    units = _units([failed for failed in failures if failed.run_id not in echoes], flows)
    roots = _roots(units, is_downstream)
    members: dict[_Name, list[FailedUnit]] = defaultdict(list)
    name_by_run: dict[str, _Name] = {}
    for unit in units:
        if unit.key not in roots:
            is_unresolved = unit.until is None
            name = (unit.job, unit.latest.signature, "" if is_unresolved else f"{unit.key}")
            members[name].append(unit)
            name_by_run |= {failed.run_id: name for failed in unit.tries}
    affected: dict[_Name, list[FailedRun]] = defaultdict(list)
    for unit in units:
        if root := roots.get(unit.key):
            name = name_by_run[root.tries[0].run_id]
            affected[name] += unit.tries
            name_by_run |= {failed.run_id: name for failed in unit.tries}
    repeated: dict[_Name, list[FailedRun]] = defaultdict(list)
    by_run = {failed.run_id: failed for failed in failures}
    for echo, part in echoes.items():
        of_root = any(part == failed.run_id for unit in members[name_by_run[part]] for failed in unit.tries)
        (repeated if of_root else affected)[name_by_run[part]].append(by_run[echo])
    groups = (
        FailureGroup(
            units=tuple(sorted(own, key=lambda unit: (unit.first, unit.key))),
            echoes=_sorted(repeated[name]),
            affected=_sorted(affected[name]),
        )
        for name, own in members.items()
    )
    return tuple(sorted(groups, key=lambda group: (group.first, group.units[0].key)))


def _flows(failures: Iterable[FailedRun]) -> Mapping[str, str]:
    """Return the flow of each failed run: the smallest id of the runs connected by links."""
    parent: dict[str, str] = {}

    def top(run: str) -> str:
        while parent.setdefault(run, run) != run:
            run = parent[run]
        return run

    listed = list(failures)
    for failed in listed:
        tops = sorted({top(run) for run in failed.links})
        parent.update(dict.fromkeys(tops, tops[0]))
    return {failed.run_id: top(failed.run_id) for failed in listed}


def _echoes(failures: Collection[FailedRun], flows: Mapping[str, str]) -> dict[str, str]:
    """Map failed parent runs to the part of the same flow whose failure each repeats.

    A part that was resolved before the parent failed is not the cause.
    """
    of_flow: dict[str, list[FailedRun]] = defaultdict(list)
    for failed in failures:
        of_flow[flows[failed.run_id]].append(failed)
    found: dict[str, str] = {}
    for members in of_flow.values():
        if len(members) == 1:
            continue
        parents = _parents_by_job(members)
        causes = {
            parent.run_id: [
                part
                for part in members
                if parent.job in parents[part.job]
                and part.job not in parents[parent.job]
                and _is_same_run(part, parent)
                and (part.over_at is None or part.over_at > parent.at)
            ]
            for parent in members
        }
        for parent in members:
            leaves = [part for part in causes[parent.run_id] if not causes[part.run_id]]
            if leaves:
                found[parent.run_id] = min(leaves, key=lambda p: (p.over_at is not None, p.at, p.run_id)).run_id
    return found


def _parents_by_job(members: Iterable[FailedRun]) -> dict[str, set[str]]:
    """Return the parent jobs of each job of a flow, through all levels."""
    within: dict[str, set[str]] = defaultdict(set)
    for failed in members:
        within[failed.job] |= set(failed.within)
    for start in list(within):
        ahead = list(within[start])
        while ahead:
            fresh = within.get(ahead.pop(), set()) - within[start]
            within[start] |= fresh
            ahead += fresh
    return within


def _is_same_run(first: FailedRun, second: FailedRun) -> bool:
    """Whether both belong to one DAG run: a DAG run repeated for the same date keeps its run id."""
    return None in (first.dag_run_id, second.dag_run_id) or first.dag_run_id == second.dag_run_id


def _units(failures: Iterable[FailedRun], flows: Mapping[str, str]) -> list[FailedUnit]:
    tries: dict[UnitKey, list[FailedRun]] = defaultdict(list)
    for failed in failures:
        over = failed.over_at.isoformat() if failed.over_at else ""
        index = () if failed.map_index is None else (failed.map_index,)
        key = (failed.job, index, flows[failed.run_id], failed.dag_run_id or "", over)
        tries[key].append(failed)
    return [FailedUnit(key=key, tries=_sorted(found), until=found[0].over_at) for key, found in tries.items()]


def _roots(units: Iterable[FailedUnit], is_downstream: IsDownstream) -> dict[UnitKey, FailedUnit]:
    """Map each unit that follows from another to that root.

    The root failed before it, was not resolved when it failed, and is upstream. A unit that follows from another is not
    a root itself.
    """
    found: dict[UnitKey, FailedUnit] = {}
    roots: list[FailedUnit] = []
    for unit in _upstream_first(units, is_downstream):
        causes = [root for root in roots if _causes(root, unit, is_downstream)]
        if causes:
            found[unit.key] = min(causes, key=lambda root: (root.until is not None, root.first, root.key))
        else:
            roots.append(unit)
    return found


def _upstream_first(units: Iterable[FailedUnit], is_downstream: IsDownstream) -> list[FailedUnit]:
    """Return units by their first failure; at the same time, upstream units first."""
    at: dict[datetime, list[FailedUnit]] = defaultdict(list)
    for unit in units:
        at[unit.first].append(unit)
    order: list[FailedUnit] = []
    for moment in sorted(at):
        same = sorted(at[moment], key=lambda unit: unit.key)
        above = {
            u.key: sum(v.job != u.job and is_downstream(v.job, u.job) for v in same) for u in same if len(same) > 1
        }
        order += sorted(same, key=lambda unit: (above.get(unit.key, 0), unit.key))
    return order


def _causes(root: FailedUnit, unit: FailedUnit, is_downstream: IsDownstream) -> bool:
    if root.job == unit.job or root.passed or (root.until is not None and root.until <= unit.first):
        return False
    return is_downstream(root.job, unit.job)


def _sorted(failures: Iterable[FailedRun]) -> tuple[FailedRun, ...]:
    return tuple(sorted(failures, key=lambda failed: (failed.at, failed.run_id)))

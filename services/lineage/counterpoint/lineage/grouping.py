"""Grouping of failures: which are echoes of others, which follow from others, and which are one incident.

A pure function of the set of failures and of what is downstream of what: neither order nor repetition of events is
known to it, so incidents that are made by it are the same whatever came first.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from counterpoint.lineage.failures import FailedRun

Below = Callable[[str, str], bool]
"""Whether the second job is downstream of the first; jobs are given as `Node.ref`."""
UnitKey = tuple[str, int, str, str, str]
"""Job, index of a mapped task or -1, flow, DAG run, and the moment since which it is over."""


def _weight(failed: FailedRun) -> tuple[int, bool, bool, datetime, str]:
    """Rank of a failure by how much of its unit it tells."""
    return failed.try_number or 0, failed.told, not failed.statement, failed.at, failed.run_id


@dataclass(frozen=True, slots=True)
class Unit:
    """The failed tries of one job in one flow that are standing, or over at the same moment."""

    key: UnitKey
    tries: tuple[FailedRun, ...]
    until: datetime | None

    @property
    def job(self) -> str:
        """The job, as `Node.ref`."""
        return self.tries[0].job

    @property
    def first(self) -> datetime:
        """The time of the earliest failing."""
        return min(failed.at for failed in self.tries)

    @property
    def latest(self) -> FailedRun:
        """The failing that stands for the unit."""
        return max(self.tries, key=_weight)

    @property
    def count(self) -> int:
        """Number of tries, as far as is known; statements of one run are one try."""
        numbers = [failed.try_number for failed in self.tries if failed.try_number is not None]
        return max(numbers, default=max(1, sum(not failed.statement for failed in self.tries)))

    @property
    def passed(self) -> bool:
        """Whether a further try of the same flow has put it right: nothing follows from that."""
        return all(failed.passed for failed in self.tries)

    @property
    def waits(self) -> bool:
        """Whether another try is to come, or a part's failure."""
        latest = self.latest
        partial = all(failed.statement for failed in self.tries)
        return (latest.retries_left or latest.whole or partial) and not latest.waited


@dataclass(frozen=True, slots=True)
class Group:
    """One incident: units that are one failure, their echoes in the wholes, and the failures that follow from it.

    The echoes of what follows are among what follows.
    """

    units: tuple[Unit, ...]
    echoes: tuple[FailedRun, ...] = ()
    affected: tuple[FailedRun, ...] = ()

    @property
    def origin(self) -> FailedRun:
        """The failure that says what is broken: the latest."""
        latest = [unit.latest for unit in self.units]
        return max(latest, key=lambda failed: (failed.told, not failed.statement, failed.at, failed.run_id))

    @property
    def first(self) -> datetime:
        """The time of the earliest failing."""
        return min(unit.first for unit in self.units)

    @property
    def roots(self) -> tuple[FailedRun, ...]:
        """The failures of its own units, earliest first."""
        return tuple(sorted((one for unit in self.units for one in unit.tries), key=lambda one: (one.at, one.run_id)))

    @property
    def waits(self) -> bool:
        """Whether nothing is asked for yet."""
        return all(unit.waits for unit in self.units) and not any(echo.waited for echo in self.echoes)


_Name = tuple[str, str, str]
"""Job, signature, and the unit where it is over."""


def grouped(failures: Collection[FailedRun], below: Below) -> tuple[Group, ...]:
    """The groups of all failures, standing or over, earliest first. A group is either standing or over."""
    flows = _flows(failures)
    echoes = _echoes(failures, flows)
    units = _units([failed for failed in failures if failed.run_id not in echoes], flows)
    roots = _roots(units, below)
    members: dict[_Name, list[Unit]] = defaultdict(list)
    place: dict[str, _Name] = {}
    for unit in units:
        if unit.key not in roots:
            standing = unit.until is None
            name = (unit.job, unit.latest.signature, "" if standing else f"{unit.key}")
            members[name].append(unit)
            place |= {failed.run_id: name for failed in unit.tries}
    affected: dict[_Name, list[FailedRun]] = defaultdict(list)
    for unit in units:
        if root := roots.get(unit.key):
            name = place[root.tries[0].run_id]
            affected[name] += unit.tries
            place |= {failed.run_id: name for failed in unit.tries}
    repeated: dict[_Name, list[FailedRun]] = defaultdict(list)
    by_run = {failed.run_id: failed for failed in failures}
    for echo, part in echoes.items():
        of_root = any(part == failed.run_id for unit in members[place[part]] for failed in unit.tries)
        (repeated if of_root else affected)[place[part]].append(by_run[echo])
    groups = (
        Group(
            units=tuple(sorted(own, key=lambda unit: (unit.first, unit.key))),
            echoes=_sorted(repeated[name]),
            affected=_sorted(affected[name]),
        )
        for name, own in members.items()
    )
    return tuple(sorted(groups, key=lambda group: (group.first, group.units[0].key)))


def _flows(failures: Iterable[FailedRun]) -> Mapping[str, str]:
    """The flow of each failed run: the smallest id among all runs that links lead to."""
    parent: dict[str, str] = {}

    def top(run: str) -> str:
        while parent.setdefault(run, run) != run:
            run = parent[run]
        return run

    known = list(failures)
    for failed in known:
        tops = sorted({top(run) for run in failed.links})
        parent.update(dict.fromkeys(tops, tops[0]))
    return {failed.run_id: top(failed.run_id) for failed in known}


def _echoes(failures: Collection[FailedRun], flows: Mapping[str, str]) -> dict[str, str]:
    """Failed wholes, by run, with the part of the same flow whose failure each repeats.

    A part that was over before the whole failed is not the cause.
    """
    of_flow: dict[str, list[FailedRun]] = defaultdict(list)
    for failed in failures:
        of_flow[flows[failed.run_id]].append(failed)
    found: dict[str, str] = {}
    for members in of_flow.values():
        if len(members) == 1:
            continue
        wholes = _wholes(members)
        causes = {
            whole.run_id: [
                part
                for part in members
                if whole.job in wholes[part.job]
                and part.job not in wholes[whole.job]
                and _same_run(part, whole)
                and (part.over_at is None or part.over_at > whole.at)
            ]
            for whole in members
        }
        for whole in members:
            leaves = [part for part in causes[whole.run_id] if not causes[part.run_id]]
            if leaves:
                found[whole.run_id] = min(leaves, key=lambda p: (p.over_at is not None, p.at, p.run_id)).run_id
    return found


def _wholes(members: Iterable[FailedRun]) -> dict[str, set[str]]:
    """Return the wholes of each job of a flow, through any number of levels."""
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


def _same_run(one: FailedRun, other: FailedRun) -> bool:
    """Whether both are of one run of the flow: a DAG run made again for the same date keeps its run id."""
    return None in (one.dag_run_id, other.dag_run_id) or one.dag_run_id == other.dag_run_id


def _units(failures: Iterable[FailedRun], flows: Mapping[str, str]) -> list[Unit]:
    tries: dict[UnitKey, list[FailedRun]] = defaultdict(list)
    for failed in failures:
        over = failed.over_at.isoformat() if failed.over_at else ""
        index = -1 if failed.map_index is None else failed.map_index
        key = (failed.job, index, flows[failed.run_id], failed.dag_run_id or "", over)
        tries[key].append(failed)
    return [Unit(key=key, tries=_sorted(found), until=found[0].over_at) for key, found in tries.items()]


def _roots(units: Iterable[Unit], below: Below) -> dict[UnitKey, Unit]:
    """Units that follow from another, with the one that each follows from.

    A unit follows from one that failed before it, was not over when it failed, and lies upstream. What follows from
    something is itself no root.
    """
    found: dict[UnitKey, Unit] = {}
    roots: list[Unit] = []
    for unit in _upstream_first(units, below):
        causes = [root for root in roots if _causes(root, unit, below)]
        if causes:
            found[unit.key] = min(causes, key=lambda root: (root.until is not None, root.first, root.key))
        else:
            roots.append(unit)
    return found


def _upstream_first(units: Iterable[Unit], below: Below) -> list[Unit]:
    """Units by their first failing; of those at the same moment, the ones upstream first."""
    at: dict[datetime, list[Unit]] = defaultdict(list)
    for unit in units:
        at[unit.first].append(unit)
    order: list[Unit] = []
    for moment in sorted(at):
        same = sorted(at[moment], key=lambda unit: unit.key)
        above = {u.key: sum(v.job != u.job and below(v.job, u.job) for v in same) for u in same if len(same) > 1}
        order += sorted(same, key=lambda unit: (above.get(unit.key, 0), unit.key))
    return order


def _causes(root: Unit, unit: Unit, below: Below) -> bool:
    if root.job == unit.job or root.passed or (root.until is not None and root.until <= unit.first):
        return False
    return below(root.job, unit.job)


def _sorted(failures: Iterable[FailedRun]) -> tuple[FailedRun, ...]:
    return tuple(sorted(failures, key=lambda failed: (failed.at, failed.run_id)))

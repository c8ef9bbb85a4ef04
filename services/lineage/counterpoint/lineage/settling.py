"""Settling: the changes that make the records of incidents match the groups of failures. Pure."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from counterpoint.lineage.failures import FailedRun
from counterpoint.lineage.grouping import Below, Group, grouped
from counterpoint.lineage.incidents import (
    KEPT_AFFECTED,
    KEPT_FAILURES,
    Ending,
    Incident,
    Ledger,
    Limits,
    Span,
    State,
    standing_units,
)
from counterpoint.lineage.pool import MOMENT, pooled

_KEPT_FLOWS = 1000
_STANDING_SPANS, _CLOSED_SPANS = 1000, 200
_TARGETS = 5
"""Most times that a task is pointed anew."""
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Book:
    """The incidents that a change may concern, by id, and the ledger."""

    incidents: Mapping[str, Incident]
    ledger: Ledger


@dataclass(frozen=True, slots=True)
class Settlement:
    """The records as they become; `opened`, `capped`, `repointed`, `merged` and `recovered` are among `changed`.

    `repointed` have a task whose error or job is another now, `recovered` a task that a later run has put right,
    `merged` a task that is not needed any more.
    """

    ledger: Ledger
    changed: tuple[Incident, ...] = ()
    opened: tuple[Incident, ...] = ()
    capped: tuple[Incident, ...] = ()
    repointed: tuple[Incident, ...] = ()
    merged: tuple[Incident, ...] = ()
    recovered: tuple[Incident, ...] = ()


def settle(
    book: Book,
    fresh: Iterable[FailedRun],
    below: Below,
    limits: Limits,
    *,
    project: str,
    now: datetime,
) -> Settlement:
    """The records as they are with `fresh` failures, new or judged anew."""
    groups = grouped(pooled(book.incidents.values(), fresh), below)
    return _Matching(book, groups, limits, project, now).settlement()


def incident_id_of(project: str, failed: FailedRun, *more: str) -> str:
    """The id of the incident that a failure began."""
    said = "\x1f".join((project, failed.job, failed.run_id, failed.at.isoformat(), *more))
    return f"incident-{hashlib.sha256(said.encode()).hexdigest()[:24]}"


class _Matching:
    """Assignment of groups to records, and the records that result."""

    def __init__(self, book: Book, groups: tuple[Group, ...], limits: Limits, project: str, now: datetime) -> None:
        self._book, self._limits, self._project, self._now = book, limits, project, now
        self._standing = [group for group in groups if group.units[0].until is None]
        self._over = [group for group in groups if group.units[0].until is not None]
        self._ledger = book.ledger.since(now - _HOUR)
        self._became: dict[str, Incident] = {}
        self._opened: list[str] = []
        self._capped: list[str] = []
        self._repointed: list[str] = []

    def settlement(self) -> Settlement:
        for group, incident in self._matched():
            self._keep(self._filled(group, incident), group)
        left = [i for i in self._book.incidents.values() if i.active and i.incident_id not in self._became]
        homes = {run: i.incident_id for i in self._became.values() for run in i.members}
        over = [i for i in left if not any(failed.run_id in homes for failed in i.roots)]
        self._keep_over({i.incident_id: i for i in over})
        homes |= {run: i.incident_id for i in self._became.values() for run in i.members if run not in homes}
        emptied = [i for i in left if i.incident_id not in self._became] + self._emptied(homes)
        closed = [self._merged(incident, homes) for incident in emptied]
        self._became |= {incident.incident_id: incident for incident in closed}
        self._hand_on(closed)
        changed = {i: new for i, new in self._became.items() if new != self._book.incidents.get(i)}
        asked = [changed[i.incident_id] for i in left if i.asked and i.incident_id in changed]
        ledger = self._ledger.model_copy(update={"spans": self._spans()})
        same = ledger.spans == self._book.ledger.spans and not (self._opened or self._capped)
        return Settlement(
            ledger=self._book.ledger if same else ledger,
            changed=tuple(changed.values()),
            opened=tuple(changed[i] for i in self._opened),
            capped=tuple(changed[i] for i in self._capped),
            repointed=tuple(changed[i] for i in self._repointed),
            merged=tuple(i for i in asked if i.ending is Ending.MERGED),
            recovered=tuple(i for i in asked if i.ending is Ending.RUN),
        )

    def _matched(self) -> list[tuple[Group, Incident | None]]:
        """Each standing group with the active incident that goes on as it, the strongest claims first."""
        claims = sorted(
            (claim, incident.state is not State.OPEN, incident.opened_at, incident.incident_id, at)
            for at, group in enumerate(self._standing)
            for incident in self._book.incidents.values()
            if incident.active and (claim := _claim(group, incident)) is not None
        )
        taken: dict[int, Incident] = {}
        used = set[str]()
        for _, _, _, incident_id, at in claims:
            if at not in taken and incident_id not in used:
                taken[at] = self._book.incidents[incident_id]
                used.add(incident_id)
        return [(group, taken.get(at)) for at, group in enumerate(self._standing)]

    def _filled(self, group: Group, known: Incident | None) -> Incident:
        """The record of a standing group: `known` with what the group has, or a new one."""
        origin, roots = group.origin, group.roots
        flows = {_short(unit.key[2] + unit.key[3]) for unit in group.units}
        first = group.first
        if known and known.job == origin.job and len(known.failures) >= KEPT_FAILURES:
            flows |= set(known.flows)
            first = min(first, known.first_at)
        unit = max(group.units, key=lambda each: (each.latest.at, each.latest.run_id))
        values = {
            "job": origin.job,
            "flow": origin.flow,
            "signature": origin.signature,
            "failures": _latest((*roots, *group.echoes), KEPT_FAILURES),
            "affected": _latest(group.affected, KEPT_AFFECTED),
            "affected_count": len(standing_units(group.affected)),
            "flows": tuple(sorted(flows))[:_KEPT_FLOWS],
            "count": len(flows),
            "tries": unit.count,
            "first_at": first,
            "last_at": max(failed.at for failed in roots),
        }
        if known:
            return known.model_copy(update=values)
        return Incident(
            incident_id=self._new_id(roots[0]),
            state=State.WAITING,
            opened_at=self._now,
            **values,
        )

    def _keep(self, incident: Incident, group: Group) -> None:
        """Add the record in its state: opened or capped once nothing is to come, pointed anew where it has changed."""
        target = f"{incident.job} {incident.signature}"
        if incident.state is State.OPEN:
            if incident.targets[-1] != target and len(incident.targets) < _TARGETS:
                incident = incident.model_copy(update={"targets": (*incident.targets, target)})
                self._repointed.append(incident.incident_id)
        elif not group.waits and self._limits.is_enough(incident):
            if len(self._ledger.opened) < self._limits.incidents_per_hour:
                opened = {"state": State.OPEN, "opened_at": self._now, "targets": (target,)}
                incident = incident.model_copy(update=opened)
                self._ledger = self._ledger.model_copy(update={"opened": (*self._ledger.opened, self._now)})
                self._opened.append(incident.incident_id)
            elif incident.state is State.WAITING:
                incident = incident.model_copy(update={"state": State.CAPPED})
                self._ledger = self._ledger.model_copy(update={"capped": (*self._ledger.capped, self._now)})
                self._capped.append(incident.incident_id)
        self._became[incident.incident_id] = incident

    def _keep_over(self, ending: Mapping[str, Incident]) -> None:
        """Keep failures that are over: in the record that ends with them, in one that is closed, or in a new one."""
        known = {i.incident_id: i for i in self._book.incidents.values() if i.ending is Ending.RUN} | dict(ending)
        kept: dict[str, list[Group]] = {}
        for group in self._over:
            runs = {failed.run_id for failed in group.roots}
            settled = [i for i in self._book.incidents.values() if i.ending is Ending.TASK and runs & i.members.keys()]
            if settled:
                home = self._became.get(settled[0].incident_id, settled[0])
                follow = {failed.run_id: failed for failed in (*home.affected, *group.affected)}
                self._became[home.incident_id] = home.model_copy(
                    update={"affected": _latest(follow.values(), KEPT_AFFECTED)}
                )
                continue
            homes = [i for i in known.values() if runs & {failed.run_id for failed in i.roots}]
            homes = homes or [i for i in known.values() if not i.asked and _is_alike(i, group.origin)]
            if homes:
                home = min(homes, key=lambda i: (not i.active, i.opened_at, i.incident_id))
            elif all(unit.passed for unit in group.units) and not group.affected:
                continue
            else:
                home = self._begun(group)
                known[home.incident_id] = home
            kept.setdefault(home.incident_id, []).append(group)
        for incident_id, groups in kept.items():
            self._became[incident_id] = _closed(known[incident_id], groups)

    def _emptied(self, homes: Mapping[str, str]) -> list[Incident]:
        """Incidents that had ended with failures which others account for, now that more is known."""
        ended = (
            i for i in self._book.incidents.values() if i.ending is Ending.RUN and i.incident_id not in self._became
        )
        return [i for i in ended if all(failed.run_id in homes for failed in i.roots)]

    def _begun(self, group: Group) -> Incident:
        """A record for failures that were over before anything was heard of them, or before the rest of theirs."""
        origin = group.origin
        flows = tuple(sorted({_short(unit.key[2] + unit.key[3]) for unit in group.units}))
        return Incident(
            incident_id=self._new_id(group.roots[0]),
            state=State.CLOSED,
            job=origin.job,
            flow=origin.flow,
            signature=origin.signature,
            failures=group.roots,
            flows=flows,
            count=len(flows),
            first_at=group.first,
            last_at=origin.at,
            opened_at=self._now,
        )

    def _merged(self, incident: Incident, homes: Mapping[str, str]) -> Incident:
        """An incident whose failures are kept in others."""
        into = next((homes[failed.run_id] for failed in incident.failures if failed.run_id in homes), None)
        values = {"closed_at": self._now, "closed_by": into, "ending": Ending.MERGED}
        return incident.model_copy(update={"state": State.CLOSED, **values})

    def _hand_on(self, merged: Iterable[Incident]) -> None:
        """Have the incidents that others were merged into lead to those, where people have said something of them."""
        for incident in merged:
            into = self._became.get(incident.closed_by or "") or self._book.incidents.get(incident.closed_by or "")
            if into is not None and (incident.joins or incident.parts):
                parts = tuple(sorted({*into.parts, incident.incident_id}))
                self._became[into.incident_id] = into.model_copy(update={"parts": parts})

    def _new_id(self, failed: FailedRun) -> str:
        found = incident_id_of(self._project, failed)
        while found in self._book.incidents or found in self._became:
            found = incident_id_of(self._project, failed, found)
        return found

    def _spans(self) -> tuple[Span, ...]:
        spans = {span.incident_id: span for span in self._ledger.spans}
        for incident in self._became.values():
            span = _span(incident)
            spans.pop(incident.incident_id, None)
            if span is not None:
                spans[incident.incident_id] = span
        known = sorted(spans.values(), key=lambda span: (span.first, span.incident_id))
        closed = sorted((s for s in known if s.until is not None), key=lambda s: (s.until, s.incident_id))[
            -_CLOSED_SPANS:
        ]
        standing = [span for span in known if span.until is None][-_STANDING_SPANS:]
        return (*standing, *closed)


def _claim(group: Group, incident: Incident) -> int | None:
    """Strength of an active incident's claim to a group: by its own failures, an echo's, or one that follows."""
    own = {failed.run_id for failed in incident.roots}
    if own & {failed.run_id for failed in group.roots}:
        return 0
    if own & {failed.run_id for failed in group.echoes}:
        return 1
    return 2 if own & {failed.run_id for failed in group.affected} else None


def _closed(incident: Incident, groups: Iterable[Group]) -> Incident:
    """The record of failures that are over."""
    groups = list(groups)
    roots = [failed for group in groups for failed in group.roots]
    own = {failed.run_id: failed for group in groups for failed in (*group.roots, *group.echoes)}
    follow = {failed.run_id: failed for group in groups for failed in group.affected}
    last = max(roots, key=lambda failed: (str(failed.over_at), failed.over_by or ""))
    return incident.model_copy(
        update={
            "state": State.CLOSED,
            "ending": Ending.RUN,
            "closed_at": last.over_at,
            "closed_by": last.over_by,
            "failures": _latest(own.values(), KEPT_FAILURES),
            "affected": _latest(follow.values(), KEPT_AFFECTED),
            "first_at": min(failed.at for failed in roots),
            "last_at": max(failed.at for failed in roots),
        }
    )


def _is_alike(incident: Incident, failed: FailedRun) -> bool:
    return incident.job == failed.job and incident.signature == failed.signature


def _span(incident: Incident) -> Span | None:
    roots = [failed for failed in incident.roots if not failed.passed]
    if incident.ending is Ending.MERGED or not roots:
        return None
    until = None
    if incident.ending is Ending.TASK:
        until = incident.last_at + MOMENT
    elif incident.ending is Ending.RUN:
        until = max((failed.over_at for failed in roots if failed.over_at), default=incident.closed_at)
    return Span(
        incident_id=incident.incident_id,
        job=incident.job,
        within=incident.origin.within,
        first=min(incident.first_at, *(failed.at for failed in roots)),
        until=until,
    )


def _latest(failures: Iterable[FailedRun], limit: int) -> tuple[FailedRun, ...]:
    return tuple(sorted(failures, key=lambda failed: (failed.at, failed.run_id))[-limit:])


def _short(flow: str) -> str:
    return hashlib.sha256(flow.encode()).hexdigest()[:8]

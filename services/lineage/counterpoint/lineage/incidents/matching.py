"""Matching: the changes that make the records of incidents match the groups of failures. Pure."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from counterpoint.lineage.incidents.failure_pool import MOMENT, pool_failures
from counterpoint.lineage.incidents.failures import FailedRun
from counterpoint.lineage.incidents.grouping import FailureGroup, IsDownstream, group_failures
from counterpoint.lineage.incidents.incident import (
    AFFECTED_LIMIT,
    FAILURES_BYTES,
    FAILURES_LIMIT,
    IncidentEnding,
    IncidentLedger,
    IncidentLimits,
    IncidentRecord,
    IncidentSpan,
    IncidentState,
    unresolved_failures,
)
from counterpoint.lineage.sizes import last_fitting

_KEPT_FLOWS = 1000
_STANDING_SPANS, _CLOSED_SPANS = 1000, 200
_STANDING_BYTES, _CLOSED_BYTES = 200_000, 50_000
_CAPPED = 1000
"""Maximum number of caps counted for an hour."""
_TARGETS = 5
"""Maximum number of amendments of one task."""
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class IncidentSnapshot:
    """The incidents that a decision may change, by id, and the ledger."""

    incidents: Mapping[str, IncidentRecord]
    ledger: IncidentLedger


@dataclass(frozen=True, slots=True)
class IncidentChanges:
    """The new records; `opened`, `capped`, `repointed`, `merged` and `recovered` are among `changed`.

    The task of `repointed` incidents has a new error or job, that of `recovered` ones was resolved by a later run, and
    that of `merged` ones is not needed any more.
    """

    ledger: IncidentLedger
    changed: tuple[IncidentRecord, ...] = ()
    opened: tuple[IncidentRecord, ...] = ()
    capped: tuple[IncidentRecord, ...] = ()
    repointed: tuple[IncidentRecord, ...] = ()
    merged: tuple[IncidentRecord, ...] = ()
    recovered: tuple[IncidentRecord, ...] = ()


def match_incidents(
    snapshot: IncidentSnapshot,
    fresh: Iterable[FailedRun],
    is_downstream: IsDownstream,
    limits: IncidentLimits,
    *,
    project: str,
    now: datetime,
) -> IncidentChanges:
    """Return the changes that `fresh` failures, new or changed, make to incidents."""
    groups = group_failures(pool_failures(snapshot.incidents.values(), fresh), is_downstream)
    return _Matching(snapshot, groups, limits, project, now).changes()


def incident_id_of(project: str, failed: FailedRun, *more: str) -> str:
    """Return the id of the incident that begins with a failure."""
    identity = "\x1f".join((project, failed.job, failed.run_id, failed.at.isoformat(), *more))
    return f"incident-{hashlib.sha256(identity.encode()).hexdigest()[:24]}"


class _Matching:
    """Assignment of groups to incident records."""

    def __init__(
        self,
        snapshot: IncidentSnapshot,
        groups: tuple[FailureGroup, ...],
        limits: IncidentLimits,
        project: str,
        now: datetime,
    ) -> None:
        self._snapshot, self._limits, self._project, self._now = snapshot, limits, project, now
        self._unresolved = [group for group in groups if group.units[0].until is None]
        self._resolved = [group for group in groups if group.units[0].until is not None]
        self._ledger = snapshot.ledger.since(now - _HOUR)
        self._changed: dict[str, IncidentRecord] = {}
        self._opened: list[str] = []
        self._capped: list[str] = []
        self._repointed: list[str] = []

    def changes(self) -> IncidentChanges:
        for group, incident in self._match():
            self._keep(self._record_of(group, incident), group)
        remaining = [i for i in self._snapshot.incidents.values() if i.active and i.incident_id not in self._changed]
        homes = {run: i.incident_id for i in self._changed.values() for run in i.members}
        ending = [i for i in remaining if not any(failed.run_id in homes for failed in i.roots)]
        self._keep_resolved({i.incident_id: i for i in ending})
        homes |= {run: i.incident_id for i in self._changed.values() for run in i.members if run not in homes}
        emptied = [i for i in remaining if i.incident_id not in self._changed] + self._without_failures(homes)
        closed = [self._merge_record(incident, homes) for incident in emptied]
        self._changed |= {incident.incident_id: incident for incident in closed}
        self._keep_joins(closed)
        changed = {i: new for i, new in self._changed.items() if new != self._snapshot.incidents.get(i)}
        with_task = [changed[i.incident_id] for i in remaining if i.has_task and i.incident_id in changed]
        ledger = self._ledger.model_copy(update={"spans": self._spans()})
        is_unchanged = ledger.spans == self._snapshot.ledger.spans and not (self._opened or self._capped)
        return IncidentChanges(
            ledger=self._snapshot.ledger if is_unchanged else ledger,
            changed=tuple(changed.values()),
            opened=tuple(changed[i] for i in self._opened),
            capped=tuple(changed[i] for i in self._capped),
            repointed=tuple(changed[i] for i in self._repointed),
            merged=tuple(i for i in with_task if i.ending is IncidentEnding.MERGED),
            recovered=tuple(i for i in with_task if i.ending is IncidentEnding.RUN),
        )

    def _match(self) -> list[tuple[FailureGroup, IncidentRecord | None]]:
        """Pair each unresolved group with the active incident that continues as it; the strongest claims win."""
        claims = sorted(
            (claim, incident.state is not IncidentState.OPEN, incident.opened_at, incident.incident_id, at)
            for at, group in enumerate(self._unresolved)
            for incident in self._snapshot.incidents.values()
            if incident.active and (claim := _claim(group, incident)) is not None
        )
        incident_by_group: dict[int, IncidentRecord] = {}
        used = set[str]()
        for _, _, _, incident_id, at in claims:
            if at not in incident_by_group and incident_id not in used:
                incident_by_group[at] = self._snapshot.incidents[incident_id]
                used.add(incident_id)
        return [(group, incident_by_group.get(at)) for at, group in enumerate(self._unresolved)]

    def _record_of(self, group: FailureGroup, existing: IncidentRecord | None) -> IncidentRecord:
        """Return the record of an unresolved group: `existing` updated, or a new one."""
        origin, roots = group.origin, group.roots
        flows = {unit.flow for unit in group.units}
        first = group.first
        if existing and existing.job == origin.job and existing.is_full:
            flows |= set(existing.flows)
            first = min(first, existing.first_at)
        unit = max(group.units, key=lambda each: (each.latest.at, each.latest.run_id))
        values = {
            "job": origin.job,
            "flow": origin.flow,
            "signature": origin.signature,
            "failures": _newest((*roots, *group.echoes), FAILURES_LIMIT),
            "affected": _newest(group.affected, AFFECTED_LIMIT),
            "affected_count": len(unresolved_failures(group.affected)),
            "flows": tuple(sorted(flows))[:_KEPT_FLOWS],
            "count": len(flows),
            "tries": unit.count,
            "first_at": first,
            "last_at": max(failed.at for failed in roots),
        }
        if existing:
            return existing.model_copy(update=values)
        return IncidentRecord(
            incident_id=self._new_id(roots[0]),
            state=IncidentState.WAITING,
            opened_at=self._now,
            **values,
        )

    def _keep(self, incident: IncidentRecord, group: FailureGroup) -> None:
        """Keep the record: open or cap it when its group no longer waits, amend its task when its target has
        changed."""
        target = f"{incident.job} {incident.signature}"
        if incident.state is IncidentState.OPEN:
            if incident.targets[-1] != target and len(incident.targets) < _TARGETS:
                incident = incident.model_copy(update={"targets": (*incident.targets, target)})
                self._repointed.append(incident.incident_id)
        elif not group.waits and self._limits.is_enough(incident):
            if len(self._ledger.opened) < self._limits.incidents_per_hour:
                opened = {"state": IncidentState.OPEN, "opened_at": self._now, "targets": (target,)}
                incident = incident.model_copy(update=opened)
                self._ledger = self._ledger.model_copy(update={"opened": (*self._ledger.opened, self._now)})
                self._opened.append(incident.incident_id)
            elif incident.state is IncidentState.WAITING:
                incident = incident.model_copy(update={"state": IncidentState.CAPPED})
                capped = (*self._ledger.capped, self._now)[-_CAPPED:]
                self._ledger = self._ledger.model_copy(update={"capped": capped})
                self._capped.append(incident.incident_id)
        self._changed[incident.incident_id] = incident

    def _keep_resolved(self, ending: Mapping[str, IncidentRecord]) -> None:
        """Keep resolved failures: in the record that ends with them, in a closed record, or in a new one."""
        existing = {
            i.incident_id: i for i in self._snapshot.incidents.values() if i.ending is IncidentEnding.RUN
        } | dict(ending)
        groups_by_record: dict[str, list[FailureGroup]] = {}
        for group in self._resolved:
            runs = {failed.run_id for failed in group.roots}
            settled = [
                i
                for i in self._snapshot.incidents.values()
                if i.ending is IncidentEnding.TASK and runs & i.members.keys()
            ]
            if settled:
                home = self._changed.get(settled[0].incident_id, settled[0])
                follow = {failed.run_id: failed for failed in (*home.affected, *group.affected)}
                self._changed[home.incident_id] = home.model_copy(
                    update={"affected": _newest(follow.values(), AFFECTED_LIMIT)}
                )
                continue
            homes = [i for i in existing.values() if runs & {failed.run_id for failed in i.roots}]
            homes = homes or [i for i in existing.values() if not i.has_task and _is_same_failure(i, group.origin)]
            if homes:
                home = min(homes, key=lambda i: (not i.active, i.opened_at, i.incident_id))
            elif all(unit.passed for unit in group.units) and not group.affected:
                continue
            else:
                home = self._closed_record(group)
                existing[home.incident_id] = home
            groups_by_record.setdefault(home.incident_id, []).append(group)
        for incident_id, groups in groups_by_record.items():
            self._changed[incident_id] = _close(existing[incident_id], groups)

    def _without_failures(self, homes: Mapping[str, str]) -> list[IncidentRecord]:
        """Return ended incidents whose failures now belong to others."""
        ended = (
            i
            for i in self._snapshot.incidents.values()
            if i.ending is IncidentEnding.RUN and i.incident_id not in self._changed
        )
        return [i for i in ended if all(failed.run_id in homes for failed in i.roots)]

    def _closed_record(self, group: FailureGroup) -> IncidentRecord:
        """Return a new closed record for failures that were resolved before they were received."""
        origin = group.origin
        flows = tuple(sorted({unit.flow for unit in group.units}))
        return IncidentRecord(
            incident_id=self._new_id(group.roots[0]),
            state=IncidentState.CLOSED,
            job=origin.job,
            flow=origin.flow,
            signature=origin.signature,
            failures=_newest(group.roots, FAILURES_LIMIT),
            flows=flows,
            count=len(flows),
            first_at=group.first,
            last_at=origin.at,
            opened_at=self._now,
        )

    def _merge_record(self, incident: IncidentRecord, homes: Mapping[str, str]) -> IncidentRecord:
        """Close an incident whose failures belong to others."""
        into = next((homes[failed.run_id] for failed in incident.failures if failed.run_id in homes), None)
        values = {"closed_at": self._now, "closed_by": into, "ending": IncidentEnding.MERGED}
        return incident.model_copy(update={"state": IncidentState.CLOSED, **values})

    def _keep_joins(self, merged: Iterable[IncidentRecord]) -> None:
        """Add merged incidents that have joins to the parts of the incidents they were merged into."""
        for incident in merged:
            into = self._changed.get(incident.closed_by or "") or self._snapshot.incidents.get(incident.closed_by or "")
            if into is not None and (incident.joins or incident.parts):
                parts = tuple(sorted({*into.parts, incident.incident_id}))
                self._changed[into.incident_id] = into.model_copy(update={"parts": parts})

    def _new_id(self, failed: FailedRun) -> str:
        found = incident_id_of(self._project, failed)
        while found in self._snapshot.incidents or found in self._changed:
            found = incident_id_of(self._project, failed, found)
        return found

    def _spans(self) -> tuple[IncidentSpan, ...]:
        spans = {span.incident_id: span for span in self._ledger.spans}
        for incident in self._changed.values():
            span = _span(incident)
            spans.pop(incident.incident_id, None)
            if span is not None:
                spans[incident.incident_id] = span
        existing = sorted(spans.values(), key=lambda span: (span.first, span.incident_id))
        closed = sorted((s for s in existing if s.until is not None), key=lambda s: (s.until, s.incident_id))
        standing = [span for span in existing if span.until is None]
        return (
            *last_fitting(standing[-_STANDING_SPANS:], _STANDING_BYTES),
            *last_fitting(closed[-_CLOSED_SPANS:], _CLOSED_BYTES),
        )


def _claim(group: FailureGroup, incident: IncidentRecord) -> int | None:
    """Return the rank of an active incident's claim to a group: 0 by its own failures, 1 by repetitions, 2 by affected
    ones."""
    own = {failed.run_id for failed in incident.roots}
    if own & {failed.run_id for failed in group.roots}:
        return 0
    if own & {failed.run_id for failed in group.echoes}:
        return 1
    return 2 if own & {failed.run_id for failed in group.affected} else None


def _close(incident: IncidentRecord, groups: Iterable[FailureGroup]) -> IncidentRecord:
    """Close an incident with its resolved groups."""
    groups = list(groups)
    roots = [failed for group in groups for failed in group.roots]
    own = {failed.run_id: failed for group in groups for failed in (*group.roots, *group.echoes)}
    follow = {failed.run_id: failed for group in groups for failed in group.affected}
    last = max(roots, key=lambda failed: (str(failed.over_at), failed.over_by or ""))
    return incident.model_copy(
        update={
            "state": IncidentState.CLOSED,
            "ending": IncidentEnding.RUN,
            "closed_at": last.over_at,
            "closed_by": last.over_by,
            "failures": _newest(own.values(), FAILURES_LIMIT),
            "affected": _newest(follow.values(), AFFECTED_LIMIT),
            "first_at": min(failed.at for failed in roots),
            "last_at": max(failed.at for failed in roots),
        }
    )


def _is_same_failure(incident: IncidentRecord, failed: FailedRun) -> bool:
    return incident.job == failed.job and incident.signature == failed.signature


def _span(incident: IncidentRecord) -> IncidentSpan | None:
    roots = [failed for failed in incident.roots if not failed.passed]
    if incident.ending is IncidentEnding.MERGED or not roots:
        return None
    until = None
    if incident.ending is IncidentEnding.TASK:
        until = incident.last_at + MOMENT
    elif incident.ending is IncidentEnding.RUN:
        until = max((failed.over_at for failed in roots if failed.over_at), default=incident.closed_at)
    return IncidentSpan(
        incident_id=incident.incident_id,
        job=incident.job,
        within=incident.origin.within,
        first=min(incident.first_at, *(failed.at for failed in roots)),
        until=until,
    )


def _newest(failures: Iterable[FailedRun], limit: int) -> tuple[FailedRun, ...]:
    return last_fitting(sorted(failures, key=lambda failed: (failed.at, failed.run_id))[-limit:], FAILURES_BYTES)

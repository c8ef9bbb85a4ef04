"""Recoveries: the differences between a run that failed and the run that shows it is over."""

from datetime import timedelta

from counterpoint.lineage.records import Run

_LIMIT, _TEXT_CHARS = 50, 400
_NOTABLE = 1.2
"""Factor between two durations from which they count as different."""


def differences(failed: Run, success: Run) -> tuple[str, ...]:
    """Return what the events of the two runs say differently, in words; a retry of the same run has no differences."""
    if failed.run_id == success.run_id:
        return ()
    names = sorted(failed.facts.keys() | success.facts.keys())
    rows = [(name, failed.facts.get(name), success.facts.get(name)) for name in names]
    rows.append(("retries", _said(failed.retries), _said(success.retries)))
    before, after = _duration(failed), _duration(success)
    if before and after and max(before, after) >= _NOTABLE * min(before, after):
        rows.append(("duration", str(before), str(after)))
    said = (f"{name}: {old or 'not said'}, then {new}" for name, old, new in rows if new is not None and old != new)
    return tuple(text[:_TEXT_CHARS] for text in said)[:_LIMIT]


def _duration(run: Run) -> timedelta | None:
    """Return how long a run took, in whole seconds; None when it is not known or under a second."""
    if run.started_at is None or run.ended_at is None:
        return None
    seconds = round((run.ended_at - run.started_at).total_seconds())
    return timedelta(seconds=seconds) if seconds > 0 else None


def _said(number: int | None) -> str | None:
    return None if number is None else str(number)

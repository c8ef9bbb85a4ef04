"""Recoveries: the differences between a run that failed and the run that shows it is over, in words."""

from counterpoint.lineage.differences import Difference, differences
from counterpoint.lineage.records import Run

_LIMIT, _TEXT_CHARS = 50, 400


def changed_between(failed: Run, success: Run) -> tuple[str, ...]:
    """Return what is known to have changed; between the tries of one run nothing is."""
    if failed.run_id == success.run_id:
        return ()
    rows = differences(failed, success)
    if failed.retries is not None and success.retries is not None and failed.retries != success.retries:
        rows.append({"what": "retries", "before": str(failed.retries), "after": str(success.retries)})
    return tuple(_in_words(row)[:_TEXT_CHARS] for row in rows[:_LIMIT])


def _in_words(row: Difference) -> str:
    named = " ".join(row[part] for part in ("what", "name") if part in row)
    return f"{named}: {row.get('before', 'none')}, then {row.get('after', 'none')}"

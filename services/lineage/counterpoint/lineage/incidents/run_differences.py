"""Differences between two runs of a job, such as the last success and the failure. Pure."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from counterpoint.lineage.records import JobRecord, RunRecord

RunDifference = dict[str, str]
"""Keys `what`, and where known `name`, `before`, `after`, `url`."""

DIFFERENCES_LIMIT = 40
_WORDS_CHARS = 400
_ORDER = ("code", "repository", "image", "configuration", "schema", "freshness", "volume", "duration", "upstream")
_VOLUME_RATIO, _DURATION_RATIO = 1.5, 2.0
_LEAST_DURATION, _SECOND = timedelta(seconds=30), timedelta(seconds=1)
_COMPARISONS = (("github.", "{repo}/compare/{before}...{after}"), ("gitlab", "{repo}/-/compare/{before}...{after}"))


def run_differences(before: RunRecord, after: RunRecord) -> list[RunDifference]:
    """Return the differences between two runs, most relevant first. A fact must have been reported by both.

    Volumes count from a ratio of 1.5, durations from a ratio of 2.
    """
    differences: list[RunDifference] = []
    for name in sorted(before.facts.keys() & after.facts.keys()):
        old, new = before.facts[name], after.facts[name]
        if old == new:
            continue
        what, _, of = name.partition(" ")
        if what == "volume" and not _differs(_number(old), _number(new), _VOLUME_RATIO):
            continue
        if what == "schema":
            old, new = _columns(old, new)
        differences.append(_difference(what, of, old, new))
    for row in differences:
        repo = after.facts.get("repository")
        if row["what"] == "code" and "name" not in row and repo:
            row |= _comparison(repo, row["before"], row["after"])
    before_duration, after_duration = _duration(before), _duration(after)
    if (
        before_duration
        and after_duration
        and max(before_duration, after_duration) >= _LEAST_DURATION
        and _differs(before_duration / _SECOND, after_duration / _SECOND, _DURATION_RATIO)
    ):
        differences.append(_difference("duration", "", _duration_text(before_duration), _duration_text(after_duration)))
    return _sorted(differences)


def upstream_differences(
    since: datetime, failed_at: datetime, producers: Mapping[str, Sequence[JobRecord]], flow: str | None
) -> list[RunDifference]:
    """Return failed and missing updates of the inputs since a time; `producers` are jobs by the dataset they write.

    An input that a part of the same `flow` writes is not called missing, since the event of its run may still come.
    """
    differences: list[RunDifference] = []
    for dataset, jobs in producers.items():
        for job in jobs:
            good, bad = job.last_success, job.last_failure
            if bad is not None and bad.at <= failed_at and (good is None or good.at < bad.at):
                differences.append(_difference("upstream", job.name, "", f"failed at {_time_text(bad.at)}"))
        written = [job.last_success.at for job in jobs if job.last_success is not None]
        within = flow is not None and any(job.parent == flow for job in jobs)
        if written and max(written) < since and not within:
            text = f"not written since {_time_text(max(written))}"
            differences.append(_difference("freshness", dataset, "", text))
    return _sorted(differences)


def describe_changes(failed: RunRecord, success: RunRecord) -> tuple[str, ...]:
    """Describe the known changes between a failed and a successful run; tries of one run have none."""
    if failed.run_id == success.run_id:
        return ()
    rows = run_differences(failed, success)
    if failed.retries is not None and success.retries is not None and failed.retries != success.retries:
        rows.append({"what": "retries", "before": str(failed.retries), "after": str(success.retries)})
    return tuple(_describe(row)[:_WORDS_CHARS] for row in rows)


def _describe(row: RunDifference) -> str:
    label = " ".join(row[part] for part in ("what", "name") if part in row)
    return f"{label}: {row.get('before', 'none')}, then {row.get('after', 'none')}"


def _difference(what: str, name: str, before: str, after: str) -> RunDifference:
    values = {"what": what, "name": name, "before": before, "after": after}
    return {key: value for key, value in values.items() if value}


def _sorted(differences: list[RunDifference]) -> list[RunDifference]:
    rank = {what: at for at, what in enumerate(_ORDER)}
    differences.sort(key=lambda row: (rank.get(row["what"], len(rank)), row.get("name", "")))
    return differences[:DIFFERENCES_LIMIT]


def _columns(old: str, new: str) -> tuple[str, str]:
    """Columns removed from and added to a schema."""
    before, after = set(old.split(", ")), set(new.split(", "))
    return ", ".join(sorted(before - after)) or "-", ", ".join(sorted(after - before)) or "-"


def _comparison(repo: str, before: str, after: str) -> RunDifference:
    address = re.sub(r"^git@([^:]+):", r"https://\1/", repo).removesuffix(".git").rstrip("/")
    host = re.match(r"https?://([^/]+)/", f"{address}/")
    if host is None:
        return {}
    for forge, form in _COMPARISONS:
        if forge in host[1]:
            return {"url": form.format(repo=address, before=before, after=after)}
    return {}


def _number(text: str) -> float:
    differences = re.match(r"\d+", text)
    return float(differences[0]) if differences else 0.0


def _differs(first: float, second: float, ratio: float) -> bool:
    low, high = sorted((first, second))
    return high > 0 and (low == 0 or high / low >= ratio)


def _duration(run: RunRecord) -> timedelta | None:
    if run.started_at is None or run.ended_at is None or run.ended_at <= run.started_at:
        return None
    return run.ended_at - run.started_at


def _duration_text(before_duration: timedelta) -> str:
    seconds = round(before_duration.total_seconds())
    hours, minutes, rest = seconds // 3600, seconds % 3600 // 60, seconds % 60
    parts = [(hours, "h"), (minutes, "min"), (rest, "s")]
    return " ".join(f"{number} {unit}" for number, unit in parts if number) or "0 s"


def _time_text(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"

"""Sections about the failure: what failed and how often, its error, changes before it, and links."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from counterpoint.card.model import SHOWN_ROWS, CardSection, Line, section
from counterpoint.proto.findings import OPEN_SAME_FAILURE, Downstream
from counterpoint.proto.signature import headline
from counterpoint.proto.tasks import Task
from counterpoint.proto.words import ordinal, quantity, span

_ERROR_LINES, _ERROR_CHARS = 6, 600
_DESCRIPTION_LINES, _DESCRIPTION_CHARS = 30, 3000
_Named = tuple[str, str]
"""Namespace and name of a job or data set."""


def failure(task: Task, verbose: bool) -> Iterator[CardSection]:
    """Yield what failed, how often and after how many tries, and the error."""
    context = task.context or {}
    yield section("failed" if task.kind == "troubleshoot" else "asked", _failed(task, context, verbose))
    if task.error_message and task.error_message.strip():
        yield section("error", _error(task.error_message.strip(), verbose), "code")
    if isinstance(hint := context.get("hint"), str):
        yield section("hint", [hint])


def change(task: Task, verbose: bool) -> CardSection:
    """Return the changes since the last success that events reported."""
    rows = _rows((task.context or {}).get("changed"))
    shown = rows if verbose else rows[:SHOWN_ROWS]
    more = [f"and {len(rows) - len(shown)} more"] if len(rows) > len(shown) else []
    return section("changed", [*(line for row in shown for line in _change(row)), *more])


def affected(task: Task, verbose: bool) -> CardSection:
    """Return the failures caused by this one, as counted by lineage."""
    context = task.context or {}
    found = [_owner(row) for row in (task.findings.downstream if task.findings else ())]
    found += [_owner(row) for row in _rows(context.get("downstream"))]
    owners = {key: owner for key, owner in found if owner}
    rows = [_affected(row, owners) for row in _rows(context.get("affected"))]
    reported = context.get("affected_count")
    count = max(reported if isinstance(reported, int) else 0, len(rows))
    if not count:
        return section("affected", ())
    first = f"{quantity(count, 'failure')} downstream of it"
    shown = rows if verbose else rows[:SHOWN_ROWS]
    more = [f"and {count - len(shown)} more"] if count > len(shown) else []
    return section("affected", [first, *shown, *more])


def merged(task: Task) -> CardSection:
    """Return the incidents that people declared to be parts of this one, or the one that it is a part of."""
    context = task.context or {}
    into = context.get("merged_into")
    first = [f"merged into {into}, which is handled instead"] if into else []
    return section("merged", [*first, *(_part(row) for row in _rows(context.get("merged")))])


def also_open(task: Task) -> CardSection:
    """Return the other open task about the same failure, with the command that shows it."""
    other = (task.context or {}).get(OPEN_SAME_FAILURE)
    if not isinstance(other, Mapping) or not other.get("task_id"):
        return section("also open", ())
    task_id = other["task_id"]
    first = (
        f"{task_id} is about the same failure, open since {moment(other.get('submitted_at'))}, "
        f"from {other.get('submitted_by')}"
    )
    return section("also open", [first, f"    counterpoint show {task_id} --project {task.project}"])


def links(task: Task) -> CardSection:
    """Return the links of the task: log, code, repository, source."""
    context, target = task.context or {}, task.target
    code = context.get("code")
    code_url = code.get("url") or code.get("repository_url") if isinstance(code, Mapping) else None
    known = {
        "log": context.get("log_url"),
        "code": code_url,
        "repository": target.repo if target else None,
        "source": task.source_ref if task.source_ref and "://" in task.source_ref else None,
    }
    return section("links", [(name, str(url)) for name, url in known.items() if url])


def moment(value: Any) -> str:
    """Return a time from another system in a readable form, or the text as it is."""
    parsed = _time(value)
    return f"{parsed.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if parsed and parsed.tzinfo else str(value)


def _failed(task: Task, context: Mapping[str, Any], verbose: bool) -> Iterator[str]:
    job = task.target.job if task.target else None
    parts = _rows(context.get("merged"))
    often = _of_all(parts, context.get("repeats")) if parts else _repeats(context)
    if job:
        yield f"{job.namespace}/{job.name}" + (f", {often}" if often else "")
    elif often:
        yield often
    if tries := _tries(context):
        yield tries
    if owner := context.get("owner"):
        yield f"owner {owner}"
    # The description of an incident's task repeats these facts.
    shown = ((task.title or "").strip(), (task.error_message or "").strip())
    if "incident_id" not in context and task.description.strip() not in shown:
        yield from _description(task.description.strip(), verbose)


def _description(text: str, verbose: bool) -> Iterator[str]:
    """Yield the description, of a long one the beginning."""
    lines = text.splitlines()
    if verbose or (len(lines) <= _DESCRIPTION_LINES and len(text) <= _DESCRIPTION_CHARS):
        yield text
        return
    yield "\n".join(text[:_DESCRIPTION_CHARS].splitlines()[:_DESCRIPTION_LINES])
    yield f"… {quantity(len(lines), 'line')} and {len(text)} characters in total, shown with --verbose"


def _of_all(parts: Sequence[Mapping[str, Any]], repeats: Any) -> str | None:
    """Return the failures of an incident and of those merged into it."""
    count = repeats.get("count") if isinstance(repeats, Mapping) else None
    if not isinstance(count, int):
        return None
    first, last = _time(repeats.get("first_at")), _time(repeats.get("last_at"))
    when = f" in {span(last - first)}" if first and last else ""
    since = f", first on {first.date()}" if first and last else ""
    incidents = "the incident" if len(parts) == 1 else f"the {len(parts)} incidents"
    return f"{quantity(count, 'failure')}{when} with {incidents} merged into it{since}"


def _repeats(context: Mapping[str, Any]) -> str | None:
    repeats = context.get("repeats")
    if not isinstance(repeats, Mapping) or not isinstance(count := repeats.get("count"), int) or count < 1:
        return None
    first, last = _time(repeats.get("first_at")), _time(repeats.get("last_at"))
    if count == 1:
        return "first failure with this error" if context.get("previous_incident") else "first failure"
    if not first or not last:
        return f"{ordinal(count)} time"
    return f"{ordinal(count)} time in {span(last - first)}, first on {first.date()}"


def _tries(context: Mapping[str, Any]) -> str | None:
    tries, retries = context.get("tries"), context.get("retries")
    if tries is None:
        return None
    most = (
        f"{tries} of {retries + 1} tries" if isinstance(retries, int) else f"{tries} {'try' if tries == 1 else 'tries'}"
    )
    failed_at = context.get("failed_at")
    if not failed_at:
        return most
    return f"{most}, {'' if tries == 1 else 'the last '}at {moment(failed_at)}"


def _error(error: str, verbose: bool) -> Iterator[str]:
    """Yield the error, of a long one the exception that escaped, or the beginning and the end of a log."""
    lines = error.splitlines()
    if verbose or (len(lines) <= _ERROR_LINES and len(error) <= _ERROR_CHARS):
        yield from lines
        return
    raised, message = headline(error)
    message = message.strip()
    whole = f"{raised}: {message}" if raised and not message.startswith(raised) else message
    if raised is None and len(lines) > _ERROR_LINES:
        half = _ERROR_LINES // 2
        yield from _lines(whole[: _ERROR_CHARS // 2])[:half]
        yield "…"
        yield from _lines(whole[-_ERROR_CHARS // 2 :])[-half:]
    else:
        yield from _lines(whole[:_ERROR_CHARS])[:_ERROR_LINES]
    yield f"… {quantity(len(lines), 'line')} in total, shown with --verbose"


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


_WITHOUT_BEFORE = ("freshness", "upstream")
"""Changes without a previous value."""


def _change(row: Mapping[str, Any]) -> Iterator[Line]:
    before, after, url = row.get("before"), row.get("after"), row.get("url")
    if before is not None and after is not None:
        how = f"{before} → {after}"
    elif after is not None:
        how = str(after) if row.get("what") in _WITHOUT_BEFORE else f"now {after}"
    elif before is not None:
        how = f"no longer {before}"
    else:
        how = "changed"
    yield str(row.get("what", "")), str(row.get("name") or ""), how
    if url:
        yield f"    {url}"


def _affected(row: Mapping[str, Any], owners: Mapping[_Named, str]) -> Line:
    """Return the row of a failure downstream, with its owner if that is known."""
    name = "/".join(str(row[part]) for part in ("namespace", "name") if row.get(part))
    at = row.get("failed_at")
    key, stated = _owner(row)
    owner = stated or owners.get(key)
    return name, f"failed at {moment(at)}" if at else "failed", *([owner] if owner else [])


def _owner(row: Downstream | Mapping[str, Any]) -> tuple[_Named, str | None]:
    """Return the name of a job or data set downstream, and its owner."""
    if isinstance(row, Downstream):
        return (row.namespace, row.name), row.owner
    owner = row.get("owner")
    return (str(row.get("namespace")), str(row.get("name"))), str(owner) if owner else None


def _part(row: Mapping[str, Any]) -> Line:
    count = row.get("count")
    often = quantity(count, "flow") if isinstance(count, int) else ""
    how = "works again" if row.get("over") else f"last failed at {moment(row.get('last_at'))}"
    return f"{row.get('namespace')}/{row.get('name')}", often, how, str(row.get("task_id"))


def _rows(value: Any) -> Sequence[Mapping[str, Any]]:
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list | tuple) else []


def _time(value: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None

"""`counterpoint ingest --type troubleshooting`: import past incidents from files."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterpoint.cli.errors import ApiError, CommandError, Exit
from counterpoint.cli.ingest.incident_files import IncidentRow, IncidentSheet, read
from counterpoint.cli.session import CommandSession

if TYPE_CHECKING:
    from counterpoint.cli.api import ApiClient

SUFFIXES = frozenset({".csv", ".tsv", ".json", ".jsonl", ".ndjson"})
ROWS, BATCH_BYTES = 200, 256 * 1024
_ANSWERED = (400, 413, 422)


@dataclass(frozen=True)
class RowResult:
    """Result of a row. `status` is memory's, or `faulty` for a row that was not sent."""

    source: str
    row: int
    status: str
    id: str | None = None
    problem: str | None = None

    @property
    def failed(self) -> bool:
        """Return whether the row is missing in memory."""
        return self.status in ("refused", "faulty")


def import_files(session: CommandSession, paths: Sequence[Path]) -> Exit:
    """Import the incidents of files. Invalid rows are reported and skipped."""
    sheets, unreadable = _sheets(paths)
    results = [
        RowResult(source, fault.number, "faulty", problem=f"{fault.column} {fault.problem}".strip())
        for source, sheet in sheets.items()
        for fault in sheet.faulty
    ]
    rows = [row for sheet in sheets.values() for row in sheet.rows]
    with session.connect() as api:
        results += _with_progress(session, rows, lambda on_sent: list(send(api, rows, session.project, on_sent)))
    results.sort(key=lambda result: (result.source, result.row))
    for problem in unreadable:
        session.note(problem)
    for result in results:
        if result.failed:
            session.note(f"{result.source} row {result.row}: {result.problem}")
    for source, sheet in sheets.items():
        if sheet.unread:
            session.note(f"{source}: ignored unknown columns: {', '.join(sheet.unread)}")
    report = {
        "incidents": [{name: value for name, value in vars(result).items() if value is not None} for result in results],
        "unreadable": unreadable,
        "unread": {source: list(sheet.unread) for source, sheet in sheets.items() if sheet.unread},
    }
    session.show(report, lambda: _summary(results, unreadable))
    return Exit.FAILED if unreadable or any(result.failed for result in results) else Exit.DONE


def send(
    api: "ApiClient", rows: Sequence[IncidentRow], project: str | None, on_sent: Callable[[int], None]
) -> Iterator[RowResult]:
    """Send rows in batches. The rows of a refused batch are sent one by one."""
    for group in _groups(rows):
        try:
            results_of_batch = _post(api, group, project)
        except ApiError as refused:
            if refused.status not in _ANSWERED:
                raise
            if len(group) > 1:
                for row in group:
                    yield from send(api, [row], project, on_sent)
                continue
            results_of_batch = [{"status": "refused", "problem": _problem(refused)}]
        for row, became in zip(group, results_of_batch, strict=True):
            yield RowResult(row.incident.source, row.number, became["status"], became.get("id"), became.get("problem"))
        on_sent(len(group))


def _post(api: "ApiClient", group: Sequence[IncidentRow], project: str | None) -> list[dict[str, Any]]:
    incidents = [row.incident.model_dump(mode="json", exclude_none=True) for row in group]
    results_of_batch: list[dict[str, Any]] = api.post("/v1/attempts", {"incidents": incidents}, project=project)[
        "incidents"
    ]
    return results_of_batch


def _problem(refused: ApiError) -> str:
    faults = [f"{each.get('field')} {each.get('problem')}" for each in refused.body.get("errors", ())]
    return "; ".join(faults) or str(refused.body.get("detail") or refused)


def _groups(rows: Iterable[IncidentRow]) -> Iterator[list[IncidentRow]]:
    group: list[IncidentRow] = []
    size = 0
    for row in rows:
        more = len(row.incident.model_dump_json(exclude_none=True).encode())
        if group and (size + more > BATCH_BYTES or len(group) == ROWS):
            yield group
            group, size = [], 0
        group.append(row)
        size += more
    if group:
        yield group


def _sheets(paths: Sequence[Path]) -> tuple[dict[str, IncidentSheet], list[str]]:
    """Return the content of the files by source, and the problems of unreadable ones."""
    sheets: dict[str, IncidentSheet] = {}
    unreadable: list[str] = []
    for path in _files(paths):
        source = _source(path)
        if source in sheets:
            continue
        try:
            sheets[source] = read(source, path.read_bytes().decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            unreadable.append(f"{source} is not UTF-8: {error.reason} at byte {error.start}")
        except OSError as error:
            unreadable.append(f"{source}: {error.strerror}")
        except CommandError as error:
            unreadable.append(str(error))
    if not sheets and not unreadable:
        unreadable.append(f"nothing found: a folder is searched for {', '.join(sorted(SUFFIXES))}")
    return sheets, unreadable


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from (one for one in sorted(path.rglob("*")) if one.suffix.lower() in SUFFIXES and one.is_file())
        else:
            yield path


def _source(path: Path) -> str:
    absolute, here = path.absolute(), Path.cwd()
    return (absolute.relative_to(here) if absolute.is_relative_to(here) else absolute).as_posix()


def _with_progress(
    session: CommandSession, rows: Sequence[IncidentRow], work: Callable[[Callable[[int], None]], list[RowResult]]
) -> list[RowResult]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("remembering"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    shown = session.err.is_terminal
    with Progress(*columns, console=session.err, disable=not shown, transient=True) as progress:
        bar = progress.add_task("remembering", total=len(rows))
        return work(lambda count: progress.advance(bar, count))


def _summary(results: Sequence[RowResult], unreadable: Sequence[str]) -> str:
    from counterpoint.proto.words import quantity

    counts = Counter(result.status for result in results)
    counted = ", ".join(f"{count} {status}" for status, count in counts.items()) or "none"
    unread = f"; {quantity(len(unreadable), 'file')} not read" if unreadable else ""
    return f"{quantity(len(results), 'past incident')}: {counted}{unread}"

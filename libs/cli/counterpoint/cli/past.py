"""`counterpoint ingest --type troubleshooting`: past incidents from files, each row an attempt that was reported."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterpoint.cli.errors import CommandError, Exit, Refused
from counterpoint.cli.incidents import Row, Sheet, read
from counterpoint.cli.session import Session

if TYPE_CHECKING:
    from counterpoint.cli.api import Api

SUFFIXES = frozenset({".csv", ".tsv", ".json", ".jsonl", ".ndjson"})
ROWS, BATCH_BYTES = 200, 256 * 1024
_ANSWERED = (400, 413, 422)


@dataclass(frozen=True)
class Result:
    """What became of one row. `status` is memory's word, `faulty` for a row that was not sent."""

    source: str
    row: int
    status: str
    id: str | None = None
    problem: str | None = None

    @property
    def failed(self) -> bool:
        """Whether it is not in memory now."""
        return self.status in ("refused", "faulty")


def remember(session: Session, paths: Sequence[Path]) -> Exit:
    """Hand over the incidents of files; a row with a fault is named and the rest goes on."""
    sheets, unreadable = _sheets(paths)
    results = [
        Result(source, fault.number, "faulty", problem=f"{fault.column} {fault.problem}".strip())
        for source, sheet in sheets.items()
        for fault in sheet.faulty
    ]
    rows = [row for sheet in sheets.values() for row in sheet.rows]
    with session.connect() as api:
        results += _with_progress(session, rows, lambda sent: list(send(api, rows, session.project, sent)))
    results.sort(key=lambda result: (result.source, result.row))
    for problem in unreadable:
        session.note(problem)
    for result in results:
        if result.failed:
            session.note(f"{result.source} row {result.row}: {result.problem}")
    for source, sheet in sheets.items():
        if sheet.unread:
            session.note(f"{source}: nobody reads the columns {', '.join(sheet.unread)}")
    report = {
        "incidents": [{name: value for name, value in vars(result).items() if value is not None} for result in results],
        "unreadable": unreadable,
        "unread": {source: list(sheet.unread) for source, sheet in sheets.items() if sheet.unread},
    }
    session.show(report, lambda: _summary(results, unreadable))
    return Exit.FAILED if unreadable or any(result.failed for result in results) else Exit.DONE


def send(api: "Api", rows: Sequence[Row], project: str | None, sent: Callable[[int], None]) -> Iterator[Result]:
    """Hand rows over in groups. A group that is refused is sent row by row, so that the others are remembered."""
    for group in _groups(rows):
        try:
            found = _post(api, group, project)
        except Refused as refused:
            if refused.status not in _ANSWERED:
                raise
            if len(group) > 1:
                for row in group:
                    yield from send(api, [row], project, sent)
                continue
            found = [{"status": "refused", "problem": _problem(refused)}]
        for row, became in zip(group, found, strict=True):
            yield Result(row.incident.source, row.number, became["status"], became.get("id"), became.get("problem"))
        sent(len(group))


def _post(api: "Api", group: Sequence[Row], project: str | None) -> list[dict[str, Any]]:
    incidents = [row.incident.model_dump(mode="json", exclude_none=True) for row in group]
    found: list[dict[str, Any]] = api.post("/v1/attempts", {"incidents": incidents}, project=project)["incidents"]
    return found


def _problem(refused: Refused) -> str:
    faults = [f"{each.get('field')} {each.get('problem')}" for each in refused.body.get("errors", ())]
    return "; ".join(faults) or str(refused.body.get("detail") or refused)


def _groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    group: list[Row] = []
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


def _sheets(paths: Sequence[Path]) -> tuple[dict[str, Sheet], list[str]]:
    """What the files hold by their names as sources, and why others are not read."""
    sheets: dict[str, Sheet] = {}
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
    session: Session, rows: Sequence[Row], work: Callable[[Callable[[int], None]], list[Result]]
) -> list[Result]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("remembering"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    shown = session.err.is_terminal
    with Progress(*columns, console=session.err, disable=not shown, transient=True) as progress:
        bar = progress.add_task("remembering", total=len(rows))
        return work(lambda count: progress.advance(bar, count))


def _summary(results: Sequence[Result], unreadable: Sequence[str]) -> str:
    from counterpoint.cli.words import counted

    counts = Counter(result.status for result in results)
    said = ", ".join(f"{count} {status}" for status, count in counts.items()) or "none"
    left = f"; {counted(len(unreadable), 'file')} not read" if unreadable else ""
    return f"{counted(len(results), 'past incident')}: {said}{left}"

"""Past incidents in files: tables with a header line, and JSON.

Columns have several accepted names. Unknown columns are reported and ignored. An invalid row is reported with its
number and does not stop the others.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from io import StringIO
from typing import Any

from counterpoint.cli.errors import CommandError
from counterpoint.proto.attempts import Outcome
from counterpoint.proto.incidents import PastIncident

COLUMNS: dict[str, tuple[str, ...]] = {
    "error_message": ("error", "error_message", "error_text", "exception", "traceback", "failure"),
    "title": ("title", "subject", "headline"),
    "description": ("description", "summary", "problem", "incident", "symptom"),
    "tried": ("tried", "fix", "action", "action_taken", "attempt", "attempted", "solution", "resolution", "remedy"),
    "outcome": ("outcome", "result", "status", "worked", "success"),
    "when": ("when", "date", "time", "timestamp", "at", "occurred_at", "resolved_at", "day"),
    "by": ("by", "who", "author", "user", "person", "engineer", "owner", "reported_by", "resolved_by"),
    "id": ("id", "key", "ticket", "incident_id", "number"),
    "systems": ("systems", "system", "services", "service"),
    "job": ("job", "dag", "pipeline"),
    "note": ("note", "notes", "comment", "comments", "remark", "remarks"),
}
"""Columns and their accepted names, in order of preference."""
REQUIRED = ("tried", "outcome", "when", "by")

OUTCOMES: dict[Outcome, tuple[str, ...]] = {
    "succeeded": (
        *("succeeded", "success", "successful", "fixed", "resolved", "solved", "ok", "okay", "yes", "y", "true", "1"),
        *("worked", "it worked", "helped", "done", "closed", "works"),
    ),
    "failed": (
        *(
            "failed",
            "failure",
            "fail",
            "no",
            "n",
            "false",
            "0",
            "did not help",
            "didn't help",
            "not fixed",
            "unresolved",
        ),
        *("did not work", "didn't work", "no effect", "not resolved", "unsuccessful", "no change", "worse"),
    ),
    "partial": ("partial", "partly", "partially", "in part", "helped partly", "workaround", "mitigated", "somewhat"),
}
"""Accepted words of each outcome."""
_OUTCOME_BY_WORD = {word: outcome for outcome, words in OUTCOMES.items() for word in words}
_DATES = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%Y%m%d", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%b %d %Y")
_CLOCKS = ("", " %H:%M", " %H:%M:%S")
_DELIMITERS = ",;\t"


@dataclass(frozen=True)
class IncidentRow:
    """An incident and its row number. The header line of a table is row 1."""

    number: int
    incident: PastIncident


@dataclass(frozen=True)
class InvalidRow:
    """An invalid row: the column and the problem."""

    number: int
    column: str
    problem: str


@dataclass(frozen=True)
class IncidentSheet:
    """The content of a file: valid rows, invalid rows, and unknown columns."""

    rows: tuple[IncidentRow, ...] = ()
    faulty: tuple[InvalidRow, ...] = ()
    unread: tuple[str, ...] = field(default=())


class IncidentFileError(CommandError):
    """The file is not a table of incidents."""


def read(source: str, text: str) -> IncidentSheet:
    """Parse the incidents of a file: JSON, JSON lines, or a table, by its name. Raises `IncidentFileError`."""
    suffix = source.rpartition(".")[2].lower()
    head = text.lstrip("\ufeff \t\r\n")[:1]
    if not head:
        raise IncidentFileError(f"{source} is empty")
    if suffix in ("jsonl", "ndjson"):
        return _sheet(source, _json_lines(text))
    if suffix == "json" or head in "[{":
        return _sheet(source, _json(source, text))
    return _sheet(source, _table(source, text))


def parse_outcome(word: str) -> Outcome | None:
    """Return the outcome of a word, or None."""
    return _OUTCOME_BY_WORD.get(" ".join(word.replace("’", "'").strip(" .!").split()).lower())


def parse_time(text: str) -> datetime | None:
    """Parse a time: RFC 3339, a date, or an RFC 5322 date. The default zone is UTC, the default time midnight.

    Returns None for an invalid or ambiguous time: 03/04/2026 may be in March or April."""
    text = " ".join(text.split())
    try:
        parsed = datetime.fromisoformat(text)
        return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    except ValueError:
        pass
    for day in _DATES:
        for clock in _CLOCKS:
            try:
                return datetime.strptime(text, day + clock).replace(tzinfo=UTC)
            except ValueError:
                continue
    try:
        parsed = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


_Raw = tuple[int, Mapping[str, Any] | InvalidRow]


def _table(source: str, text: str) -> Iterator[_Raw]:
    text = text.removeprefix("\ufeff")
    first = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = max(_DELIMITERS, key=first.count)
    reader = csv.reader(StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        number, header = 1, next(row for row in reader if any(cell.strip() for cell in row))
    except (csv.Error, StopIteration) as error:
        raise IncidentFileError(f"{source} has no valid header line: {error}") from error
    names = [_plain(name) for name in header]
    _known_columns(source, names)
    try:
        for number, cells in enumerate(reader, 2):
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) > len(names):
                yield number, InvalidRow(number, header[-1], f"is followed by {len(cells) - len(names)} extra cells")
            else:
                yield number, dict(zip(header, cells, strict=False))
    except csv.Error as error:
        yield number + 1, InvalidRow(number + 1, header[0], f"cannot be read, nor can the rows after it: {error}")


def _json_lines(text: str) -> Iterator[_Raw]:
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield number, InvalidRow(number, "", f"is not valid JSON: {error}")
        else:
            yield number, value if isinstance(value, dict) else InvalidRow(number, "", "is not a JSON object")


def _json(source: str, text: str) -> Iterator[_Raw]:
    try:
        value = json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        lines = list(_json_lines(text))
        if len(lines) > 1 and not any(isinstance(one, InvalidRow) for _, one in lines):
            yield from lines
            return
        raise IncidentFileError(f"{source} is not valid JSON: {error}") from error
    if isinstance(value, dict):
        lists = [value[name] for name in ("incidents", "attempts", "items") if isinstance(value.get(name), list)]
        value = lists[0] if lists else [value]
    if not isinstance(value, list):
        raise IncidentFileError(f"{source} does not contain a list of incidents")
    for number, one in enumerate(value, 1):
        yield number, one if isinstance(one, dict) else InvalidRow(number, "", "is not a JSON object")


def _known_columns(source: str, names: Iterable[str]) -> None:
    given = set(names)
    missing = [column for column in REQUIRED if not given & set(COLUMNS[column])]
    if not given & {*COLUMNS["error_message"], *COLUMNS["title"], *COLUMNS["description"]}:
        missing.insert(0, "error")
    if missing:
        names = "; ".join(f"{name} ({', '.join(COLUMNS.get(name, COLUMNS['error_message'])[:4])})" for name in missing)
        raise IncidentFileError(f"{source} has no column for {names}: the first line must name the columns")


def _sheet(source: str, raw: Iterable[_Raw]) -> IncidentSheet:
    rows: list[IncidentRow] = []
    faulty: list[InvalidRow] = []
    unread: dict[str, None] = {}
    for number, cells in raw:
        if isinstance(cells, InvalidRow):
            faulty.append(cells)
            continue
        made, left = _row(source, number, cells)
        unread |= dict.fromkeys(left)
        if isinstance(made, IncidentRow):
            rows.append(made)
        else:
            faulty.append(made)
    if not rows and not faulty:
        raise IncidentFileError(f"{source} contains no incidents")
    return IncidentSheet(tuple(rows), tuple(faulty), tuple(unread))


def _row(source: str, number: int, cells: Mapping[str, Any]) -> tuple[IncidentRow | InvalidRow, list[str]]:
    """Return a row as an incident, and its unknown columns."""
    by_name = {_plain(name): name for name in cells}
    values_by_column: dict[str, tuple[str, Any]] = {}
    for column, names in COLUMNS.items():
        for name in names:
            if name in by_name and _has_value(cells[by_name[name]]) and column not in values_by_column:
                values_by_column[column] = (by_name[name], cells[by_name[name]])
    if "title" in values_by_column and "description" not in values_by_column:
        values_by_column["description"] = values_by_column.pop("title")
    read_names = {name for name, _ in values_by_column.values()}
    left = [name for name in cells if name not in read_names and _has_value(cells[name])]

    def fault(column: str, problem: str) -> InvalidRow:
        return InvalidRow(number, values_by_column[column][0] if column in values_by_column else column, problem)

    if "error_message" not in values_by_column and "description" not in values_by_column:
        return fault("error", "is empty"), left
    for column in REQUIRED:
        if column not in values_by_column:
            return fault(column, "is empty"), left
    values: dict[str, Any] = {"source": source}
    for column, (_, value) in values_by_column.items():
        match column:
            case "outcome":
                values[column] = parse_outcome(str(value))
                if values[column] is None:
                    return fault(column, f"says {str(value)[:80]!r}: must be succeeded, failed or partial"), left
            case "when":
                values[column] = parse_time(str(value))
                if values[column] is None:
                    return fault(column, f"says {str(value)[:80]!r}: must be a time such as 2026-11-20T17:30:00Z"), left
            case "systems":
                split = value if isinstance(value, list) else str(value).replace(";", ",").replace("|", ",").split(",")
                values[column] = tuple(str(each).strip() for each in split if str(each).strip())
            case "job":
                job = _job(value)
                if job is None:
                    return fault(column, f"says {str(value)[:80]!r}: must be a job, NAMESPACE/NAME"), left
                values[column] = job
            case _:
                if isinstance(value, dict | list):
                    return fault(column, "must be text"), left
                values[column] = str(value).strip()
    return _checked(number, values, {column: name for column, (name, _) in values_by_column.items()}), left


def _checked(number: int, values: dict[str, Any], names: Mapping[str, str]) -> IncidentRow | InvalidRow:
    from pydantic import ValidationError

    try:
        return IncidentRow(number, PastIncident.model_validate(values))
    except ValidationError as error:
        first = error.errors()[0]
        column = str(first["loc"][0]) if first["loc"] else ""
        return InvalidRow(number, names.get(column, column), str(first["msg"]))


def _job(value: Any) -> dict[str, str] | None:
    if isinstance(value, dict):
        return {"namespace": str(value.get("namespace", "")), "name": str(value.get("name", ""))}
    namespace, slash, name = str(value).strip().rpartition("/")
    return {"namespace": namespace, "name": name} if slash and namespace and name else None


def _has_value(value: Any) -> bool:
    return value is not None and value != [] and bool(str(value).strip())


def _plain(name: str) -> str:
    return "_".join(name.removeprefix("\ufeff").strip().lower().replace("-", " ").replace("_", " ").split())

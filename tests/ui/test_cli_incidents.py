"""Past incidents in files: columns by any usual name, every fault with its row and column, and what is sent."""

import json
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner
from ui.cli_server import ScriptedApi

from counterpoint.cli.ingest.incident_files import COLUMNS, OUTCOMES, IncidentFileError, parse_outcome, parse_time, read
from counterpoint.cli.main import app
from counterpoint.proto.attempts import Outcome

TABLE = """error;tried;outcome;when;by;systems;job;note;colour
"Disk full
on node 7";Emptied /tmp;fixed;2026-03-04;ada;postgres, s3;prod/orders.load;It was the log.;red
Disk full;Rebooted;did not help;2026-03-05 07:30;bob;;;;
Disk full;Waited;perhaps;2026-03-05;bob;;;;
Disk full;Waited;failed;03/04/2026;bob;;;;
Disk full;;failed;2026-03-05;bob;;;;

Disk full;Waited;failed;2026-03-05;bob;;orders;;
Disk full;Waited;failed;2026-03-05;bob;;;;;;more
;Waited;failed;2026-03-05;bob;;;;
"""


def test_a_table_is_read_by_its_header_and_each_fault_names_row_and_column() -> None:
    sheet = read("past.csv", TABLE)
    first, second = (row.incident for row in sheet.rows)
    assert first.error_message == "Disk full\non node 7"
    assert (first.outcome, first.by, first.systems) == ("succeeded", "ada", ("postgres", "s3"))
    assert first.job is not None
    assert (first.job.namespace, first.job.name) == ("prod", "orders.load")
    assert first.when == datetime(2026, 3, 4, tzinfo=UTC)
    assert (second.outcome, second.when.isoformat()) == ("failed", "2026-03-05T07:30:00+00:00")
    assert [(fault.number, fault.column) for fault in sheet.faulty] == [
        (4, "outcome"),
        (5, "when"),
        (6, "tried"),
        (8, "job"),
        (9, "colour"),
        (10, "error"),
    ]
    assert sheet.unread == ("colour",)
    assert [row.number for row in sheet.rows] == [2, 3]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_delimiter_is_found_and_columns_go_by_other_names(delimiter: str) -> None:
    lines = [["Error Message", "Fix", "Result", "Date", "Reported-By"], ["E1", "did x", "Yes", "5 Mar 2026", "ada"]]
    sheet = read("past.csv", "\ufeff" + "\n".join(delimiter.join(line) for line in lines))
    (row,) = sheet.rows
    assert (row.incident.error_message, row.incident.tried, row.incident.by) == ("E1", "did x", "ada")


@pytest.mark.parametrize("form", ["list", "wrapped", "lines", "lines under .json", "one"])
def test_json_and_json_lines_hold_the_same(form: str) -> None:
    row: dict[str, Any] = {"description": "slow", "tried": "x", "outcome": "partly", "when": "2026-01-02", "by": "a"}
    rows = [row, row | {"systems": ["s3"], "job": {"namespace": "n", "name": "j"}}]
    text = {
        "list": json.dumps(rows),
        "wrapped": json.dumps({"incidents": rows}),
        "one": json.dumps(rows[1]),
    }.get(form, "\n".join(map(json.dumps, rows)))
    sheet = read("past.jsonl" if form == "lines" else "past.json", text)
    assert sheet.faulty == ()
    assert sheet.rows[-1].incident.systems == ("s3",)
    assert sheet.rows[-1].incident.outcome == "partial"


def test_a_line_that_is_no_json_is_named_and_the_others_are_read() -> None:
    good = json.dumps({"error": "e", "tried": "x", "outcome": "ok", "when": "2026-01-02", "by": "a"})
    sheet = read("past.jsonl", f"{good}\n{{broken\n[1]\n{good}\n")
    assert [row.number for row in sheet.rows] == [1, 4]
    assert [fault.number for fault in sheet.faulty] == [2, 3]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.csv", "", "empty"),
        ("a.csv", "one,two\n1,2\n", "no column for error"),
        ("a.csv", '"error,tried', "no valid header line"),
        ("a.csv", "error,tried,outcome,when,by\n\n", "no incident"),
        ("a.json", "[]", "no incident"),
        ("a.json", "{", "not valid JSON"),
        ("a.json", '"text"', "no column|a list of incidents"),
    ],
)
def test_a_file_without_incidents_is_refused_with_a_reason(name: str, text: str, problem: str) -> None:
    with pytest.raises(IncidentFileError, match=problem):
        read(name, text)


_CELL = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(["ok", "2026-01-02", '"', "a/b", "a,b;c"])
_ROWS = st.lists(st.lists(_CELL, max_size=9), max_size=6)


@given(_ROWS, st.sampled_from([",", ";", "\t"]), st.sampled_from(["a.csv", "a.json", "a.jsonl", "a"]))
def test_any_csv_file_is_read_or_refused_with_a_problem(rows: list[list[str]], delimiter: str, name: str) -> None:
    header = ["error", "tried", "outcome", "when", "by", "job"]
    text = "\n".join(delimiter.join(row) for row in (header, *rows))
    for given_text in (text, text[len(header[0]) :]):
        with suppress(IncidentFileError):
            sheet = read(name, given_text)
            assert sheet.rows or sheet.faulty
            assert all(fault.problem for fault in sheet.faulty)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | _CELL,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["namespace", "name", "x"]), inner),
    max_leaves=5,
)


@given(st.lists(st.dictionaries(st.sampled_from([*COLUMNS, "when", "by"]), _VALUES), min_size=1, max_size=4))
def test_every_json_row_is_taken_or_named(rows: list[dict[str, Any]]) -> None:
    sheet = read("a.json", json.dumps(rows))
    assert len(sheet.rows) + len(sheet.faulty) == len(rows)


def test_every_outcome_has_words_and_none_has_two_meanings() -> None:
    assert set(OUTCOMES) == set(get_args(Outcome))
    words = [word for each in OUTCOMES.values() for word in each]
    assert len(words) == len(set(words))
    assert parse_outcome(" Didn’t  help. ") == "failed"
    assert parse_outcome("who knows") is None
    columns = [name for names in COLUMNS.values() for name in names]
    assert len(columns) == len(set(columns))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("2026-03-04T10:00:00+02:00", "2026-03-04T10:00:00+02:00"),
        ("2026-03-04T10:00:00Z", "2026-03-04T10:00:00+00:00"),
        ("04.03.2026 10:15", "2026-03-04T10:15:00+00:00"),
        ("March 4, 2026", "2026-03-04T00:00:00+00:00"),
        ("Wed, 04 Mar 2026 10:00:00 +0100", "2026-03-04T10:00:00+01:00"),
        ("last week", None),
        ("2026-02-30", None),
        ("3/4/26", None),
    ],
)
def test_a_time_is_read_literally_or_not_at_all(said: str, expected: str | None) -> None:
    found = parse_time(said)
    assert (found.isoformat() if found else None) == expected


def test_rows_are_sent_and_refused_ones_are_named(
    api: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "past.csv").write_text(TABLE)
    fault = {"field": "incidents[0].note", "problem": "is too long"}
    api.on(
        "POST /v1/attempts",
        (422, {"title": "Unprocessable", "status": 422}),
        (200, {"incidents": [{"id": "past-1", "status": "added"}]}),
        (422, {"title": "Unprocessable", "status": 422, "errors": [fault]}),
    )
    options = ["ingest", "past.csv", "--type", "troubleshooting", "-p", "orders", "--json", *api.options()]
    shown = CliRunner().invoke(app, options)
    assert shown.exit_code == 1, shown.output
    report = json.loads(shown.stdout)
    assert [(one["row"], one["status"]) for one in report["incidents"]] == [
        (2, "added"),
        (3, "refused"),
        *((row, "faulty") for row in (4, 5, 6, 8, 9, 10)),
    ]
    assert "past.csv row 3: incidents[0].note is too long" in shown.stderr
    assert "past.csv row 5: when says '03/04/2026'" in shown.stderr
    assert "ignored unknown columns: colour" in shown.stderr
    assert [len(asked.body["incidents"]) for asked in api.asked] == [2, 1, 1]
    assert api.asked[0].params == {"project": "orders"}
    assert api.asked[0].body["incidents"][0]["source"] == "past.csv"


def test_all_taken_ends_well_and_a_folder_is_searched(
    api: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "past").mkdir()
    (tmp_path / "past" / "a.csv").write_text("error,tried,outcome,when,by\ne,x,ok,2026-01-02,ada\n")
    (tmp_path / "past" / "b.md").write_text("# no incidents")
    api.on("POST /v1/attempts", (200, {"incidents": [{"id": "past-1", "status": "unchanged"}]}))
    shown = CliRunner().invoke(app, ["ingest", "past", "--type", "troubleshooting", *api.options()])
    assert shown.exit_code == 0, shown.output
    assert shown.stdout == "1 past incident: 1 unchanged\n"


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_sent(
    api: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.csv").write_bytes(b"error,tried\n\xff")
    (tmp_path / "good.csv").write_text("error,tried,outcome,when,by\ne,x,ok,2026-01-02,ada\n")
    api.on("POST /v1/attempts", (200, {"incidents": [{"id": "past-1", "status": "added"}]}))
    shown = CliRunner().invoke(app, ["ingest", "bad.csv", "good.csv", "--type", "troubleshooting", *api.options()])
    assert shown.exit_code == 1
    assert "bad.csv is not UTF-8" in shown.stderr
    assert shown.stdout == "1 past incident: 1 added; 1 file not read\n"

"""`counterpoint scan`: a verdict for each line, whatever the lines are, and nothing passed unseen."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from counterpoint.cli.commands import scan
from counterpoint.cli.main import app

KEY = "AKIA" + "Z7QF3MPLKD2WXYTB"
COMMAND = Path(sys.executable).with_name("counterpoint")


def scanned(lines: str | bytes, *options: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit code, and what is said as JSON."""
    result = CliRunner().invoke(app, ["scan", "--json", *options], input=lines)
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()]


def test_each_line_has_its_verdict_and_the_places_of_its_findings() -> None:
    lines = [
        {"id": "a", "text": "nothing here"},
        {"id": 7, "text": f"key {KEY}"},
        {"text": "ask ann@example.org"},
        {"context": {"hosts": ["x", {f"{KEY}": 1}]}},
        "10.1.2.3 is down",
        4111111111111111,
        None,
    ]
    code, said = scanned("\n".join(json.dumps(line) for line in lines))
    assert code == 0
    assert said == [
        {"id": "a", "verdict": "allow", "findings": []},
        {"id": 7, "verdict": "block", "findings": [{"type": "aws_access_key", "start": 4, "end": 24}]},
        {"id": 3, "verdict": "redact", "findings": [{"type": "email", "start": 4, "end": 19}]},
        {
            "id": 4,
            "verdict": "block",
            "findings": [
                {
                    "type": "aws_access_key",
                    "start": 0,
                    "end": 20,
                    "path": "context.hosts.1.[redacted:aws_access_key]",
                    "in": "key",
                }
            ],
        },
        {"id": 5, "verdict": "redact", "findings": [{"type": "ip_address", "start": 0, "end": 8}]},
        {"id": 6, "verdict": "block", "findings": [{"type": "card", "start": 0, "end": 16}]},
        {"id": 7, "verdict": "allow", "findings": []},
    ]


def test_the_label_says_how_strict_it_is() -> None:
    line = json.dumps({"id": 1, "text": "10.1.2.3 asks ann@example.org"})
    verdicts = [scanned(line, "--label", label)[1][0]["verdict"] for label in ("public", "internal", "confidential")]
    assert verdicts == ["redact", "redact", "allow"]
    assert CliRunner().invoke(app, ["scan", "--label", "top"], input=line).exit_code == 2


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (b"plain words", "not valid JSON"),
        (b'{"id": 1', "not valid JSON"),
        (b'"\xff"', "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b"9" * 5000, "a number is too long"),
    ],
)
def test_a_bad_line_is_named_and_the_others_are_done(bad: bytes, problem: str) -> None:
    good = json.dumps({"id": "good", "text": KEY}).encode()
    code, said = scanned(b"\n".join([good, b"", bad, good]))
    assert code == 1
    assert [one.get("verdict") for one in said] == ["block", None, "block"]
    assert said[1]["line"] == 3
    assert problem in said[1]["error"]


def test_a_line_that_is_too_long_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "LINE_LIMIT_BYTES", 100)
    long = json.dumps({"id": "long", "text": "x" * 500 + KEY})
    code, said = scanned("\n".join([long, json.dumps({"id": "next", "text": KEY}), long]))
    assert code == 1
    assert said == [
        {"line": 1, "error": "longer than 100 bytes"},
        {"id": "next", "verdict": "block", "findings": [{"type": "aws_access_key", "start": 0, "end": 20}]},
        {"line": 3, "error": "longer than 100 bytes"},
    ]


def test_empty_input_gives_empty_output_and_success() -> None:
    assert scanned("") == (0, [])


def test_for_people_it_is_a_line_without_the_value() -> None:
    result = CliRunner().invoke(app, ["scan"], input=json.dumps({"id": "a", "text": f"key {KEY}"}) + "\nno\n")
    assert result.exit_code == 1
    assert result.stdout == "a: block  aws_access_key at 4-24\n"
    assert result.stderr == "line 2: not valid JSON: Expecting value at column 1\n"


def test_a_line_is_answered_before_the_next_one_comes() -> None:
    with subprocess.Popen(
        [COMMAND, "scan", "--json"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PATH": os.environ["PATH"]}
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for n in range(3):
            process.stdin.write(json.dumps({"id": n, "text": KEY}).encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == n
        process.stdin.close()
    assert process.returncode == 0

"""The demo: an incident that it was not written for is played and recognised, and a check that fails is said."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qsl

import httpx
import pytest
from rich.console import Console

from counterpoint.cli.commands.demo import print_report
from counterpoint.cli.demo.checks import DemoTranscript
from counterpoint.cli.errors import CommandError, Exit
from counterpoint.cli.session import CommandSession

ROOT = Path(__file__).resolve().parents[2]
FREEIPA = ROOT / "examples" / "incidents" / "freeipa.yaml"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_second_incident_in_other_words_behaves_alike(tmp_path: Path) -> None:
    """Three attempts, an override, and the next task that starts with what worked."""
    command = [sys.executable, "-m", "counterpoint.cli.main", "demo", "--incident", str(FREEIPA), "--json"]
    played = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment(tmp_path))
    assert played.returncode == 0, played.stdout + played.stderr
    report = json.loads(played.stdout)
    assert report["ok"]
    assert [check for check in report["checks"] if not check["ok"]] == []
    names = {check["name"] for check in report["checks"]}
    assert {"the earlier fix is proposed first", "the audit log verifies"} <= names
    assert {"failure", "escalated", "closed", "again"} <= set(report["cards"])
    assert list(tmp_path.iterdir()) == []


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COUNTERPOINT_")}
    return kept | {"TMPDIR": str(folder)}


def session(*, json_alone: bool) -> CommandSession:
    return CommandSession(url=None, token=None, data_dir=None, project=None, json=json_alone)


def played(console: Console | None) -> DemoTranscript:
    made = DemoTranscript(console, Console(file=io.StringIO()))
    made.begin("a part")
    made.check("this holds", True, "seen")
    return made


def test_the_head_of_a_part_takes_one_line_of_a_narrow_terminal() -> None:
    page = io.StringIO()
    played(Console(file=page, force_terminal=True, color_system=None, width=40))
    heads = [line for line in page.getvalue().splitlines() if "─" in line]
    assert heads == ["── a part ".ljust(40, "─")]


def test_a_check_that_fails_is_printed_with_the_observed_value_and_fails_the_demo(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = io.StringIO()
    made = played(Console(file=page, width=100))
    made.check("that holds", False, {"state": "working"})
    assert "✔ this holds" in page.getvalue()
    assert '✘ that holds; seen: {"state": "working"}' in page.getvalue()
    assert print_report(session(json_alone=False), made, "orders", 1.0, 2.0) == Exit.FAILED
    shown = capsys.readouterr().out
    assert "1 of 2 checks passed" in shown
    assert "✘ a part: that holds" in shown


def test_the_report_for_programs_holds_every_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_report(session(json_alone=True), played(None), "orders", 1.0, 2.0) == Exit.DONE
    report = json.loads(capsys.readouterr().out)
    assert report["checks"] == [{"part": "a part", "name": "this holds", "ok": True, "seen": "seen"}]
    assert report["seconds"] == {"ready": 1.0, "total": 2.0}


def test_a_story_that_was_not_played_is_no_success() -> None:
    with pytest.raises(CommandError):
        print_report(session(json_alone=True), DemoTranscript(None, Console(file=io.StringIO())), "orders", 1.0, 2.0)


SHOW = """
import asyncio, sys
from pathlib import Path
from counterpoint.cli.demo.console import show_console
from counterpoint.cli.session import CommandSession
session = CommandSession(url=None, token=None, data_dir=None, project=None, json=False)
asyncio.run(show_console(session, Path(sys.argv[1]), "orders"))
"""


@pytest.mark.slow
def test_the_console_of_the_story_is_open_until_it_is_interrupted(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SHOW, str(tmp_path / "stack")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environment(tmp_path)) as shown:
        assert shown.stdout is not None
        link = next(line for line in shown.stdout if "#code=" in line).split()[-1]
        address, _, fragment = link.partition("/#")
        code = dict(parse_qsl(fragment))["code"]
        own = {"Sec-Fetch-Site": "same-origin"}
        signed_in = httpx.post(f"{address}/v1/sign-in", json={"code": code}, headers=own, trust_env=False)
        assert (signed_in.status_code, "httponly" in signed_in.headers["set-cookie"].lower()) == (200, True)
        shown.send_signal(signal.SIGINT)
        assert shown.wait() == 0
    assert not (tmp_path / "stack" / "endpoints.json").exists()

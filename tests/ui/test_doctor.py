"""`counterpoint doctor` finds what prevents a start, and says what to do about each."""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.pages import ROOT, table

from counterpoint.bus.check_result import CheckResult, Level, clock_result, parse_results
from counterpoint.local.doctor import machine
from counterpoint.local.doctor.examine import examine
from counterpoint.local.doctor.variables import OF_COMMAND, examine_names, examine_settings
from counterpoint.local.settings import local_settings
from counterpoint.local.stack import Stack

COMMAND = Path(sys.executable).with_name("counterpoint")


@pytest.fixture(autouse=True)
def fresh_settings() -> Iterator[None]:
    yield
    local_settings.cache_clear()


def checks(folder: Path, **variables: str) -> dict[str, CheckResult]:
    """The findings that are not ok, by check."""
    return {finding.check: finding for finding in examine(folder, os.environ | variables) if finding.level != Level.OK}


def test_an_empty_folder_on_this_machine_is_fine(tmp_path: Path) -> None:
    findings = examine(tmp_path / "new", dict(os.environ) | {"COUNTERPOINT_HTTP_PORT": "0"})
    assert {finding.check for finding in findings if finding.level == Level.FAILED} == set()
    details = {finding.check: finding.detail for finding in findings}
    assert {"python", "disk", "memory", "program pgvector"} <= details.keys()
    for engine in ("nats", "postgres", "valkey"):
        assert re.search(r"\d+\.\d+", details[f"program {engine}"]), details
    assert not (tmp_path / "new").exists()


def test_another_python_and_little_memory_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PYTHONS", ((2, 6), (2, 7)))
    monkeypatch.setattr(machine, "MEMORY_BYTES", 1 << 60)
    found = checks(tmp_path)
    assert found["python"].level == Level.FAILED
    assert "Python 2.6 to 2.7" in found["python"].remedy
    assert found["memory"].level == Level.WARNING
    assert "free memory" in found["memory"].remedy


def test_an_api_beyond_this_machine_is_a_warning(tmp_path: Path) -> None:
    found = checks(tmp_path, COUNTERPOINT_HTTP_HOST="0.0.0.0", COUNTERPOINT_HTTP_PORT="0")
    assert found["listening"].level == Level.WARNING
    assert "counterpoint principal create" in found["listening"].remedy


def test_a_taken_port_names_the_variable(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        found = checks(tmp_path, COUNTERPOINT_HTTP_PORT=str(taken.getsockname()[1]))
    assert found["port http"].level == Level.FAILED
    assert "COUNTERPOINT_HTTP_PORT" in found["port http"].remedy


def test_a_file_and_open_rights_are_found(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert checks(tmp_path / "file" / "data")["data folder"].level == Level.FAILED
    tmp_path.chmod(0o755)
    (tmp_path / "secrets.json").write_text("{")
    (tmp_path / "secrets.json").chmod(0o644)
    found = checks(tmp_path)
    assert found["data folder"].level == Level.WARNING
    assert found["secrets"].level == Level.FAILED


def test_content_of_another_user_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = tmp_path / "state.json"
    foreign.write_text("{}")
    monkeypatch.setattr(os, "access", lambda path, mode: path != foreign)
    found = checks(tmp_path)["data folder"]
    assert found.level == Level.FAILED
    assert str(foreign) in found.detail


def test_a_server_that_is_no_valkey_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("COUNTERPOINT_VALKEY_URL", f"redis://127.0.0.1:{server.getsockname()[1]}")
        threading.Thread(target=_answer, args=(server,), daemon=True).start()
        found = checks(tmp_path)["valkey"]
    assert found.level == Level.FAILED
    assert "not that of Valkey" in found.detail


def test_an_absent_bus_is_found_before_the_first_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_NATS_URL", "nats://127.0.0.1:1")
    assert "COUNTERPOINT_NATS_URL" in checks(tmp_path)["nats"].remedy


def _answer(server: socket.socket) -> None:
    """Answer one client as a web server does."""
    client, _ = server.accept()
    with client:
        client.recv(1000)
        client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_an_absent_program_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_POSTGRES_BIN_DIR", str(tmp_path))
    found = checks(tmp_path)
    assert "COUNTERPOINT_POSTGRES_BIN_DIR" in found["program postgres"].remedy
    assert found["program pgvector"].level == Level.FAILED


def test_a_disk_that_is_too_small_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_STREAMS_BYTES", str(1 << 60))
    assert "MiB" in checks(tmp_path)["disk"].detail


def test_an_illegal_setting_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_STREAMS_BYTES", "many")
    assert "streams_bytes" in checks(tmp_path)["settings"].detail


def test_a_server_that_does_not_answer_is_a_warning(tmp_path: Path) -> None:
    found = checks(tmp_path, COUNTERPOINT_SEARCH_URL="https://user:secret@127.0.0.1:1/search")
    assert found["COUNTERPOINT_SEARCH_URL"].level == Level.WARNING
    assert "secret" not in found["COUNTERPOINT_SEARCH_URL"].detail


@pytest.mark.parametrize(("ahead_s", "level"), [(0.5, Level.OK), (-90.0, Level.WARNING)])
def test_a_clock_that_is_off_is_a_warning(ahead_s: float, level: Level) -> None:
    assert clock_result("postgres clock", ahead_s).level == level


def test_findings_are_read_between_lines_of_a_log() -> None:
    finding = CheckResult.failed("nats", "away", "start it")
    assert parse_results(f'{{"event": "x"}}\nplain\n{finding.model_dump_json()}\n') == [finding]


def test_a_running_stack_is_examined_with_its_engines(stack: Stack) -> None:
    done = subprocess.run(
        [COMMAND, "doctor", "--json", "--data-dir", stack.data_dir], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    names = {check["check"]: check["level"] for check in json.loads(done.stdout)["checks"]}
    for name in ("service memory", "engine nats", "nats jetstream", "nats clock", "postgres rights", "postgres clock"):
        assert names[name] == "ok", name
    assert "port http" not in names


def settings_of(folder: Path, **variables: str) -> dict[str, CheckResult]:
    """The findings about the settings of services, by what they name."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("COUNTERPOINT_")}
    found = asyncio.run(examine_settings(folder, environ | variables))
    return {finding.detail.partition(":")[0]: finding for finding in found if finding.level != Level.OK}


def test_values_that_the_settings_of_a_service_refuse_are_named(tmp_path: Path) -> None:
    hooks, receivers = tmp_path / "hooks.toml", tmp_path / "receivers.toml"
    hooks.write_text('[[source]]\nname = "forge"\nkind = "gihub"\n\n[[source]]\nname = "noise"\ncolour = "hush"\n')
    receivers.write_text('[[receiver]]\nname = "ops"\nurl = "gopher://hush.example.com"\n')
    for file in (hooks, receivers):
        file.chmod(0o600)
    wrong = {
        "COUNTERPOINT_WORKERS": "many",
        "COUNTERPOINT_RECALL_SHARE": "7",
        "COUNTERPOINT_PROJECT_WEIGHTS": "hush",
        "COUNTERPOINT_MAX_ATTEMPTS": "0",
        "COUNTERPOINT_PROVIDER_CLEARANCE": "hush",
    }
    found = settings_of(tmp_path, **wrong)
    assert found.keys() == wrong.keys()
    assert found["COUNTERPOINT_RECALL_SHARE"].check == "settings of memory"
    assert all(finding.level == Level.FAILED and finding.remedy for finding in found.values())
    broken = tmp_path / "broken.json"
    broken.write_text('{"hush": 1}')
    of_files = settings_of(tmp_path, COUNTERPOINT_HOOKS_FILE=str(hooks), COUNTERPOINT_CALIBRATION_FILE=str(broken))
    assert of_files.keys() == {"COUNTERPOINT_HOOKS_FILE", "COUNTERPOINT_CALIBRATION_FILE"}
    assert "source noise" in of_files["COUNTERPOINT_HOOKS_FILE"].detail
    of_receivers = settings_of(tmp_path, COUNTERPOINT_NOTIFY_FILE=str(receivers))
    assert "receiver 1: ops: url must begin with" in of_receivers["COUNTERPOINT_NOTIFY_*"].detail
    assert "hush" not in str((found, of_files, of_receivers))


def test_a_variable_that_nothing_reads_is_a_warning_with_the_one_that_may_be_meant() -> None:
    environ = {
        "COUNTERPOINT_WORKER": "9",
        "COUNTERPOINT_SIGNING_KEYS": "[]",
        "COUNTERPOINT_HTTP_FD": "3",
        "COUNTERPOINT_COLOURS": "red",
        "COUNTERPOINT_HTTP_PORT": "0",
        "COUNTERPOINT_NATS_BIN": "/bin/nats",
        "COUNTERPOINT_BACKUP_PASSPHRASE": "x",
        "COLOUR": "red",
    }
    found = examine_names(environ)
    assert [finding.level for finding in found] == [Level.WARNING] * 4
    told = {finding.detail: finding.remedy for finding in found}
    assert "COUNTERPOINT_WORKERS" in told["nothing reads COUNTERPOINT_WORKER"]
    assert "COUNTERPOINT_SIGNING_KEYS has no effect: `up` sets it itself" in told
    assert told["nothing reads COUNTERPOINT_COLOURS"] == "unset it"


def test_every_variable_of_the_docs_is_known() -> None:
    rows = table((ROOT / "docs" / "settings.md").read_text(), "## Environment")
    documented = {name: reader for name, reader, *_ in rows}
    assert {f"COUNTERPOINT_{name}" for name in OF_COMMAND} == {
        name for name, reader in documented.items() if reader == "command"
    }
    unread = {
        finding.detail for finding in examine_names(dict.fromkeys(documented, "x")) if "nothing" in finding.detail
    }
    elsewhere = ("migrate", "index", "provision", "services, jobs")
    unsupervised = {name for name, reader in documented.items() if reader.startswith(elsewhere)}
    assert unread <= {f"nothing reads {name}" for name in unsupervised}

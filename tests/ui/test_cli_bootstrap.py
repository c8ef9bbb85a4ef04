"""Beginning with what is there: phases that are found or said to be empty, and a health check that can fail."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from ui.cli_server import ScriptedApi, playing
from ui.test_cli_packages import wheel

from counterpoint.cli.ingest.bootstrap import probe_line
from counterpoint.cli.ingest.phases import PhaseOptions, collect
from counterpoint.cli.main import app

NO_ATTEMPTS: tuple[int, Any] = (200, {"items": [], "next_cursor": None})


@pytest.fixture
def api() -> Iterator[ScriptedApi]:
    with playing() as played:
        played.on("GET /v1/attempts", NO_ATTEMPTS)
        yield played


@pytest.fixture
def project_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one DAG and nothing else, where the command runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AIRFLOW_HOME", raising=False)
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "orders.py").write_text("from airflow import DAG\n\ndag = DAG('orders')\n")
    return tmp_path


def bootstrapped(api: ScriptedApi, *options: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, report and notes of one run."""
    shown = CliRunner().invoke(app, ["ingest", "--bootstrap", "--json", *options, *api.options()])
    return shown.exit_code, json.loads(shown.stdout) if shown.stdout else {}, shown.stderr


def added(*sources: str) -> tuple[int, Any]:
    return 200, {"documents": [{"source": each, "status": "added", "chunks": 1} for each in sources]}


def test_each_phase_finds_its_documents(project_folder: Path) -> None:
    own = collect("own-docs", PhaseOptions(), project_folder, {})
    assert "counterpoint/docs/retrieval.md" in [one.source for one in own.documents]
    assert "counterpoint/README.md" in [one.source for one in own.documents]
    assert [one.source for one in collect("dags", PhaseOptions(), project_folder, {}).documents] == ["dags/orders.py"]
    home = {"AIRFLOW_HOME": str(project_folder)}
    assert [one.source for one in collect("dags", PhaseOptions(), project_folder / "else", home).documents]
    empty = collect("docs", PhaseOptions(), project_folder, {})
    assert empty.empty
    assert "--docs" in empty.where
    wheel(project_folder)
    found = collect("providers", PhaseOptions(providers_dirs=(project_folder,)), project_folder, {})
    assert found.problems == ()
    assert [row.package for row in found.providers] == ["apache-airflow-providers-acme-ledger"]
    pages = {one.source.rpartition("/")[2]: one.text for one in found.documents}
    assert set(pages) == {
        "README.rst",
        "acme.operators.ledger.md",
        "acme.hooks.ledger.md",
        "acme.transfers.ledger_to_s3.md",
    }
    assert "from acme.operators.ledger import LedgerOperator" in pages["acme.operators.ledger.md"]
    assert "Books what is in a file." in pages["acme.operators.ledger.md"]


def test_a_folder_without_packages_and_a_package_that_is_not_there_are_problems(project_folder: Path) -> None:
    given = PhaseOptions(providers=("nobody-has-this",), providers_dirs=(project_folder,))
    problems = collect("providers", given, project_folder, {}).problems
    assert "not installed here" in problems[0]
    assert "contains no provider package" in problems[1]


def test_a_phase_is_done_when_memory_finds_its_documents(api: ScriptedApi, project_folder: Path) -> None:
    api.on("POST /v1/documents", added("dags/orders.py"))
    api.on("POST /v1/search", (200, {"items": [{"source": "dags/orders.py"}]}))
    code, report, notes = bootstrapped(api, "--phase", "dags", "-p", "orders")
    assert code == 0, notes
    (phase,) = report["phases"]
    assert (phase["status"], phase["counts"], phase["passages"]) == ("done", {"added": 1}, 1)
    assert [probe["found"] for probe in phase["health"]] == [True]
    assert "--type troubleshooting" in report["attempts"]["problem"]
    assert {asked.params.get("project") for asked in api.asked} == {"orders"}
    assert "[1/1] dags: 1 document" in notes


def test_a_document_that_a_search_does_not_find_fails_its_phase(api: ScriptedApi, project_folder: Path) -> None:
    api.on("POST /v1/documents", added("dags/orders.py"))
    api.on("POST /v1/search", (200, {"items": [{"source": "other.py"}]}))
    code, report, _ = bootstrapped(api, "--phase", "dags")
    assert code == 1
    assert report["phases"][0]["status"] == "failed"
    assert report["phases"][0]["health"][0]["problem"] == "a search for a line of it finds 1 passage of other sources"


def test_an_index_without_the_row_fails(api: ScriptedApi, project_folder: Path) -> None:
    wheel(project_folder)
    package = "apache-airflow-providers-acme-ledger"
    place = f"providers/{package}/"
    pages = ("README.rst", "acme.operators.ledger.md", "acme.hooks.ledger.md", "acme.transfers.ledger_to_s3.md")
    sources = [place + page for page in pages]
    api.on("POST /v1/documents", added(*sources))
    api.on("POST /v1/search", (200, {"items": [{"source": source} for source in sources]}))
    api.on("POST /v1/providers", (200, {"providers": [{"id": package, "status": "added"}]}))
    api.on("GET /v1/providers", (200, {"items": [{"package": package, "package_version": "1.0"}]}))
    options = ("--phase", "providers", "--providers-dir", str(project_folder))
    code, report, _ = bootstrapped(api, *options)
    assert code == 1
    assert [probe["found"] for probe in report["phases"][0]["health"]] == [True, True, True, False]
    api.on("GET /v1/providers", (200, {"items": [{"package": package, "package_version": "1.2.0"}]}))
    code, report, _ = bootstrapped(api, *options)
    assert code == 0
    assert report["phases"][0]["counts"] == {"added": 5}


def test_a_document_that_is_refused_fails_its_phase_and_the_next_goes_on(
    api: ScriptedApi, project_folder: Path
) -> None:
    (project_folder / "docs").mkdir()
    (project_folder / "docs" / "a.md").write_text("# A\n\nThe orders.")
    refused = {"source": "dags/orders.py", "status": "refused", "problem": "text contains what looks like a token"}
    api.on("POST /v1/documents", (200, {"documents": [refused]}), added("docs/a.md"))
    api.on("POST /v1/search", (200, {"items": [{"source": "docs/a.md"}]}))
    code, report, notes = bootstrapped(api, "--phase", "dags", "--phase", "docs")
    assert code == 1
    assert [phase["status"] for phase in report["phases"]] == ["failed", "done"]
    assert "refused dags/orders.py: text contains what looks like a token" in notes


def test_an_empty_phase_is_said_and_fails_only_where_it_was_asked_for(
    api: ScriptedApi, project_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project_folder / "dags" / "orders.py").unlink()
    code, report, notes = bootstrapped(api, "--phase", "docs")
    assert code == 1
    assert report["phases"][0]["status"] == "empty"
    assert "docs: nothing found in the usual places" in notes
    monkeypatch.setattr("counterpoint.cli.ingest.bootstrap.PHASES", ("dags", "docs"))
    code, report, _ = bootstrapped(api)
    assert code == 0
    assert [phase["status"] for phase in report["phases"]] == ["empty", "empty"]


@pytest.mark.parametrize(
    "options",
    [
        ("--bootstrap", "--phase", "nothing"),
        ("--bootstrap", "dags"),
        ("--bootstrap", "--type", "text"),
        ("--phase", "dags"),
        ("dags", "--providers", "postgres"),
        (),
    ],
)
def test_options_that_do_not_go_together_are_a_misuse(
    api: ScriptedApi, project_folder: Path, options: tuple[str, ...]
) -> None:
    shown = CliRunner().invoke(app, ["ingest", *options, *api.options()])
    assert shown.exit_code == 2
    assert api.asked == []


def test_a_document_is_asked_for_by_a_line_of_its_own() -> None:
    lines = Counter({"# the licence that all of them have": 5, "short one": 1, "a line of its own": 1})
    assert (
        probe_line("# the licence that all of them have\nshort one\na line of its own\n", lines) == "a line of its own"
    )

"""Ingesting: which files are documents and why others are not, how they are sent, and what is reported."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner
from ui.cli_server import Played, playing

from counterpoint.cli.files import Readable, Skipped, batches, walk
from counterpoint.cli.main import app


@pytest.fixture
def api() -> Iterator[Played]:
    with playing() as played:
        yield played


def test_a_folder_is_walked_and_what_is_left_out_has_its_reason(tmp_path: Path) -> None:
    (tmp_path / "a" / ".git").mkdir(parents=True)
    (tmp_path / "a" / ".git" / "HEAD").write_text("ref")
    (tmp_path / "a" / "guide.md").write_text("# Guide")
    (tmp_path / "a" / "image.png").write_bytes(b"\x89PNG\0\0")
    (tmp_path / "a" / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "a" / "late.txt").write_text("x" * 10_000 + "\0")
    (tmp_path / "a" / "empty.md").write_text(" \n")
    (tmp_path / "a" / "loop").symlink_to(tmp_path / "a")
    (tmp_path / "a" / "gone").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "a" / "pipe")

    found = list(walk([tmp_path / "a"], tmp_path))
    assert [one.source for one in found if isinstance(one, Readable)] == ["a/guide.md"]
    reasons = {one.path.name: one.reason for one in found if isinstance(one, Skipped)}
    assert reasons == {
        ".git": "hidden",
        "image.png": "binary",
        "latin.txt": "not UTF-8",
        "late.txt": "binary",
        "empty.md": "empty; what was ingested of it before stays",
        "loop": "seen already, by a link or another name",
        "gone": "No such file or directory",
        "pipe": "neither a file nor a folder",
    }
    assert not any(one.failed for one in found if isinstance(one, Skipped))


def test_what_is_named_is_taken_though_hidden_and_named_twice_is_taken_once(tmp_path: Path) -> None:
    (tmp_path / ".notes.md").write_text("notes")
    found = list(walk([tmp_path / ".notes.md", tmp_path / ".notes.md"], tmp_path / "elsewhere"))
    assert [one.source for one in found if isinstance(one, Readable)] == [(tmp_path / ".notes.md").as_posix()]


def test_a_file_has_its_own_name_and_not_that_of_a_link_to_it(tmp_path: Path) -> None:
    (tmp_path / "z.md").write_text("text")
    (tmp_path / "a.md").symlink_to(tmp_path / "z.md")
    found = list(walk([tmp_path], tmp_path))
    assert [one.source for one in found if isinstance(one, Readable)] == ["z.md"]
    assert [one.path.name for one in found if isinstance(one, Skipped)] == ["a.md"]


@given(st.lists(st.integers(0, 300), max_size=80), st.integers(1, 200))
def test_batches_hold_all_documents_in_order_within_their_bounds(sizes: list[int], most_bytes: int) -> None:
    documents = [Readable(Path(str(number)), str(number), "x" * size) for number, size in enumerate(sizes)]
    made = list(batches(documents, most_bytes))
    assert [document for batch in made for document in batch] == documents
    assert all(len(batch) <= 50 for batch in made)
    assert all(len(batch) == 1 or sum(d.size_bytes for d in batch) <= most_bytes for batch in made)


def test_documents_are_sent_and_summed_up(api: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# A")
    (tmp_path / "docs" / "b.py").write_text("b = 1")
    results = [
        {"source": "docs/a.md", "status": "added", "chunks": 1},
        {"source": "docs/b.py", "status": "unchanged", "chunks": 2},
    ]
    api.on("POST /v1/documents", (200, {"documents": results}))
    shown = CliRunner().invoke(app, ["ingest", "docs", "--type", "text", "-p", "orders", *api.options()])
    assert shown.exit_code == 0, shown.output
    assert shown.stdout == "2 documents: 1 added, 1 unchanged; 3 passages\n"
    (asked,) = api.asked
    assert asked.params == {"project": "orders"}
    assert asked.body["documents"][0] == {"source": "docs/a.md", "text": "# A", "type": "text"}


def test_a_batch_that_is_refused_is_sent_one_by_one_and_the_refused_document_is_named(
    api: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.md").write_text("good")
    (tmp_path / "b.md").write_text("too large")
    fault = {"field": "body", "problem": "is larger than 8192 KiB"}
    api.on(
        "POST /v1/documents",
        (413, {"title": "Content Too Large", "status": 413}),
        (200, {"documents": [{"source": "a.md", "status": "added", "chunks": 1}]}),
        (413, {"title": "Content Too Large", "status": 413, "errors": [fault]}),
    )
    shown = CliRunner().invoke(app, ["ingest", "a.md", "b.md", "--json", *api.options()])
    assert shown.exit_code == 1
    assert [(one["source"], one["status"]) for one in json.loads(shown.stdout)["documents"]] == [
        ("a.md", "added"),
        ("b.md", "refused"),
    ]
    assert "refused b.md: body is larger than 8192 KiB; split it into smaller files" in shown.stderr

"""Ingesting: which files are documents and why others are not, how they are sent, and what is reported."""

import json
import os
import socket
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner
from ui.cli_server import ScriptedApi
from ui.ingest_echo import Echo

from counterpoint.cli.commands.ingest import TYPES
from counterpoint.cli.ingest import files
from counterpoint.cli.ingest.files import FILE_LIMIT_BYTES, SkippedPath, SourceFile, batches, document, walk
from counterpoint.cli.ingest.upload import Upload
from counterpoint.cli.main import app
from counterpoint.proto.ingest import ContentType


def test_a_folder_is_walked_and_skipped_files_have_a_reason(tmp_path: Path) -> None:
    (tmp_path / "a" / ".git").mkdir(parents=True)
    (tmp_path / "a" / ".git" / "HEAD").write_text("ref")
    (tmp_path / "a" / "guide.md").write_text("# Guide")
    (tmp_path / "a" / "image.png").write_bytes(b"\x89PNG\0\0")
    (tmp_path / "a" / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "a" / "late.txt").write_text("x" * 10_000 + "\0")
    (tmp_path / "a" / "empty.md").write_text(" \n")
    (tmp_path / "a" / "loop").symlink_to(tmp_path / "a")
    (tmp_path / "a" / "gone").symlink_to(tmp_path / "nowhere")
    (tmp_path / "secret.txt").write_text("not yours")
    (tmp_path / "a" / "out").symlink_to(tmp_path / "secret.txt")
    (tmp_path / "a" / "huge.txt").write_bytes(b"x" * (FILE_LIMIT_BYTES + 1))
    os.mkfifo(tmp_path / "a" / "pipe")

    found = list(walk([tmp_path / "a"], tmp_path))
    assert [one.source for one in found if isinstance(one, SourceFile)] == ["a/guide.md"]
    reasons = {one.path.name: one.reason for one in found if isinstance(one, SkippedPath)}
    assert reasons == {
        ".git": "hidden",
        "image.png": "binary, of an unsupported format",
        "latin.txt": "neither UTF-8 nor UTF-16 with a byte order mark; the version ingested before is kept",
        "late.txt": "binary, of an unsupported format",
        "empty.md": "empty",
        "loop": "a link to a parent folder, which would loop",
        "out": "a link to a path outside the folder",
        "gone": "No such file or directory",
        "huge.txt": "too large: 11.0 MiB, the limit is 11 MiB; split the file",
        "pipe": "neither a file nor a folder",
    }
    failed = {one.path.name for one in found if isinstance(one, SkippedPath) and one.failed}
    assert failed == {"image.png", "latin.txt", "late.txt", "loop", "out", "huge.txt"}


def test_an_empty_file_of_a_folder_is_counted_and_no_error(api: ScriptedApi, tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "py.typed").write_text("\n")
    (package / "orders.py").write_text("FIRE = 1")
    (package / "bom.md").write_bytes(b"\xef\xbb\xbf \n")
    api.on("GET /v1/documents", (200, {"items": [], "next_cursor": None}))
    added = {"source": "package/orders.py", "status": "added", "chunks": 1}
    api.on("POST /v1/documents", (200, {"documents": [added]}))
    shown = CliRunner().invoke(app, ["ingest", str(package), *api.options()])
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert "; 3 empty paths skipped" in shown.stdout
    report = json.loads(CliRunner().invoke(app, ["ingest", str(package), "--json", *api.options()]).stdout)
    assert report["empty"] == 3


def test_an_empty_file_is_an_error_and_its_earlier_version_stays(api: ScriptedApi, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("")
    api.on("GET /v1/documents", (200, {"items": [{"source": "docs/a.md"}], "next_cursor": None}))
    shown = CliRunner().invoke(app, ["ingest", str(docs), *api.options()])
    assert shown.exit_code == 1
    assert "now empty; the version ingested before is kept" in " ".join(shown.stderr.split())
    named = CliRunner().invoke(app, ["ingest", str(docs / "a.md"), *api.options()])
    assert named.exit_code == 1
    assert {asked.method for asked in api.asked} == {"GET"}


def test_a_hidden_file_named_twice_is_taken_once(tmp_path: Path) -> None:
    (tmp_path / ".notes.md").write_text("notes")
    found = list(walk([tmp_path / ".notes.md", tmp_path / ".notes.md"], tmp_path / "elsewhere"))
    assert [one.source for one in found if isinstance(one, SourceFile)] == [(tmp_path / ".notes.md").as_posix()]


def test_a_file_has_its_own_name_and_not_that_of_a_link_to_it(tmp_path: Path) -> None:
    (tmp_path / "z.md").write_text("text")
    (tmp_path / "a.md").symlink_to(tmp_path / "z.md")
    found = list(walk([tmp_path], tmp_path))
    assert [one.source for one in found if isinstance(one, SourceFile)] == ["z.md"]
    assert [one.path.name for one in found if isinstance(one, SkippedPath)] == ["a.md"]


@given(st.lists(st.integers(0, 300), max_size=80), st.integers(1, 200))
def test_batches_hold_all_documents_in_order_within_their_bounds(sizes: list[int], most_bytes: int) -> None:
    documents = [SourceFile(Path(str(number)), str(number), "x" * size) for number, size in enumerate(sizes)]
    made = list(batches(documents, most_bytes))
    assert [document for batch in made for document in batch] == documents
    assert all(len(batch) <= 50 for batch in made)
    assert all(len(batch) == 1 or sum(d.size_bytes for d in batch) <= most_bytes for batch in made)


def test_documents_are_sent_and_summed_up(api: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# A")
    (tmp_path / "docs" / "b.py").write_text("b = 1")
    results = [
        {"source": "docs/a.md", "status": "added", "chunks": 1},
        {"source": "docs/b.py", "status": "unchanged", "chunks": 2},
    ]
    api.on("POST /v1/documents", (200, {"documents": results}))
    api.on("GET /v1/documents", (200, {"items": [], "next_cursor": None}))
    shown = CliRunner().invoke(app, ["ingest", "docs", "--type", "text", "-p", "orders", *api.options()])
    assert shown.exit_code == 0, shown.output
    assert shown.stdout == "2 documents: 1 added, 1 unchanged; 3 passages\n"
    asked, _ = api.asked
    assert asked.params == {"project": "orders"}
    root = f"file://{socket.gethostname()}{quote((tmp_path / 'docs').resolve().as_posix())}"
    assert asked.body["documents"][0] == {"source": "docs/a.md", "text": "# A", "type": "text", "root": root}
    assert (asked.body["job"]["documents"], asked.body["job"]["done"]) == (2, 0)


def test_untrusted_documents_are_sent_as_untrusted(api: ScriptedApi, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A")
    api.on("POST /v1/documents", (200, {"documents": [{"source": "a.md", "status": "added", "chunks": 1}]}))
    shown = CliRunner().invoke(app, ["ingest", str(tmp_path / "a.md"), "--untrusted", *api.options()])
    assert shown.exit_code == 0, shown.output
    assert [each["untrusted"] for each in api.asked[0].body["documents"]] == [True]
    for words in (["--type", "troubleshooting", "a.md"], ["--bootstrap"]):
        assert CliRunner().invoke(app, ["ingest", *words, "--untrusted", *api.options()]).exit_code == 2


def test_an_unvouched_passage_is_marked(api: ScriptedApi) -> None:
    hits = [
        {"source": f"{name}.md", "start": 0, "end": 3, "score": 1.0, "text": "# A", "integrity": integrity}
        for name, integrity in (("said", 2), ("found", 0))
    ]
    api.on("POST /v1/search", (200, {"items": hits}))
    shown = CliRunner().invoke(app, ["search", "A", *api.options()])
    heads = [line.partition(", ")[2] for line in shown.output.splitlines() if ".md" in line]
    assert heads == ["characters 0 to 3", "characters 0 to 3, not from a trusted source"]


def test_a_batch_that_is_refused_is_sent_one_by_one_and_the_refused_document_is_named(
    api: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
        (f"{tmp_path.name}/b.md", "refused"),
    ]
    assert f"refused {tmp_path.name}/b.md: body is larger than 8192 KiB; split it into smaller files" in shown.stderr


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("Größe".encode("utf-16"), {"text": "Größe"}),
        (b"\xef\xbb\xbfText", {"text": "Text"}),
        (b"%PDF-1.4\n\0", {"content": "JVBERi0xLjQKAA=="}),
    ],
)
def test_a_file_is_sent_as_text_or_as_bytes_that_memory_reads(content: bytes, expected: dict[str, str]) -> None:
    found = document(Path("a"), "a", content)
    assert isinstance(found, SourceFile)
    assert found.body() == {"source": "a", **expected}


def test_a_page_that_says_its_encoding_itself_is_sent_as_bytes() -> None:
    assert isinstance(document(Path("a.html"), "a.html", b"<meta charset=latin-1>\xe9"), SourceFile)


def test_standard_input_is_a_document_with_a_name(echo: Echo) -> None:
    (sent,) = echo.run("-", "--name", "notes.md", input="# Notes")
    assert sent == {"source": "notes.md", "text": "# Notes"}
    assert echo.run("-", code=2, input="x") == []


def test_pages_are_fetched_and_each_that_cannot_be_is_named(echo: Echo, api: ScriptedApi, tmp_path: Path) -> None:
    api.on("GET /page", (200, {"text": "Hello"}))
    listed = tmp_path / "pages.txt"
    listed.write_text(f"# two\n\n{api.url}/page#part\n{api.url}/missing\nhttp://user:word@127.0.0.1:9/x\n")
    (sent,) = echo.run("--urls", str(listed), code=1)
    assert sent == {"source": f"{api.url}/page", "text": '{"text": "Hello"}'}
    listed.write_text("ftp://example.com/x\n")
    assert echo.run("--urls", str(listed), code=2) == []


def test_files_are_read_as_they_are_handed_over(
    api: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(120):
        (tmp_path / f"{n:03d}.md").write_text(f"# {n}")
    (tmp_path / "120.bin").write_bytes(b"\0")
    api.on("GET /v1/documents", (200, {"items": [], "next_cursor": None}))
    opened, said = list[str](), list[tuple[int, int, int, int]]()
    read = files.read

    def counted(path: Path, *how: Any) -> SourceFile | SkippedPath:
        opened.append(path.name)
        return read(path, *how)

    def posted(run: Upload, api: Any, batch: Any, total: int) -> Any:
        said.append((len(opened), len(batch), len(run.results), total))
        return [{"source": one.source, "status": "added", "chunks": 1} for one in batch]

    monkeypatch.setattr(files, "read", counted)
    monkeypatch.setattr(Upload, "_post", posted)
    shown = CliRunner().invoke(app, ["ingest", str(tmp_path), "--json", *api.options()])
    assert shown.exit_code == 1, shown.output
    assert said == [(101, 50, 0, 121), (121, 50, 50, 121), (121, 20, 100, 120)]
    assert len(json.loads(shown.stdout)["documents"]) == 120


def test_a_text_takes_no_more_room_than_its_file(echo: Echo, api: ScriptedApi, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("ж" * 10_000, encoding="utf-8")
    (sent,) = echo.run(str(tmp_path / "a.md"))
    assert sent["text"] == "ж" * 10_000
    assert int(api.asked[-1].headers["content-length"]) < 21_000


def test_two_documents_of_one_name_in_one_run_are_not_one(echo: Echo, tmp_path: Path) -> None:
    for folder in ("x/docs", "y/docs"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.md").write_text(folder)
    (sent,) = echo.run(str(tmp_path / "x" / "docs"), str(tmp_path / "y" / "docs"), code=1)
    assert sent["text"] == "x/docs"


def test_missing_files_of_a_folder_are_deleted_but_not_unreadable_ones(
    echo: Echo, api: ScriptedApi, tmp_path: Path
) -> None:
    docs = tmp_path / "docs"
    (docs / "locked").mkdir(parents=True)
    (docs / "a.md").write_text("# A")
    (docs / "broken.md").write_bytes(b"\xff\xff")
    (docs / "old").mkdir()
    kept = ("docs/a.md", "docs/broken.md", "docs/old/b.md", "docs/.x/c.md")
    items = [{"source": source} for source in (*kept, "docs/gone.md", "docs/sub/gone.md")]
    api.on("GET /v1/documents", (200, {"items": items, "next_cursor": None}))
    sent = echo.run(str(docs), "--exclude", "docs/old", code=1)
    (docs / ".x").mkdir()
    sent = echo.run(str(docs), "--exclude", "docs/old", code=1)
    root = sent[0]["root"]
    assert sent[1:] == [
        {"source": source, "gone": True, "root": root} for source in ("docs/gone.md", "docs/sub/gone.md")
    ]


def test_a_folder_in_which_there_is_nothing_has_lost_nothing(api: ScriptedApi, tmp_path: Path) -> None:
    """A disk that is not mounted is an empty folder."""
    (tmp_path / "docs").mkdir()
    api.on(
        "GET /v1/documents", (200, {"items": [{"source": "docs/a.md"}, {"source": "docs/b.md"}], "next_cursor": None})
    )
    shown = CliRunner().invoke(app, ["ingest", str(tmp_path / "docs"), *api.options()])
    assert shown.exit_code == 1
    assert "the folder is empty: its 2 documents were kept; is it mounted?" in " ".join(shown.stderr.split())
    assert {asked.method for asked in api.asked} == {"GET"}
    api.on("GET /v1/documents", (200, {"items": [], "next_cursor": None}))
    assert CliRunner().invoke(app, ["ingest", str(tmp_path / "docs"), *api.options()]).exit_code == 0


def test_without_the_right_to_list_documents_none_is_deleted(echo: Echo, api: ScriptedApi, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A")
    api.on("GET /v1/documents", (403, {"title": "Forbidden", "status": 403}))
    api.on("POST /v1/documents", (200, {"documents": [{"source": "a", "status": "added"}]}))
    shown = CliRunner().invoke(app, ["ingest", str(tmp_path), *api.options()])
    assert shown.exit_code == 0
    assert "cannot determine what was removed from" in shown.stderr
    assert ": Forbidden" in shown.stderr


def test_an_interrupted_run_says_how_far_it_came(
    api: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.md").write_text("# A")

    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("counterpoint.cli.ingest.upload.Upload._post", interrupted)
    shown = CliRunner().invoke(app, ["ingest", str(tmp_path), "--json", *api.options()])
    assert shown.exit_code == 1
    assert json.loads(shown.stdout)["interrupted"] is True
    assert "interrupted after 0 of 1 document; run the same command to continue" in shown.stderr


def test_a_file_read_as_another_type_is_reported(api: ScriptedApi, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def broken(:")
    result = {"source": "a.py", "status": "added", "chunks": 1, "problem": "not read as Python but as plain text"}
    api.on("POST /v1/documents", (200, {"documents": [result]}))
    shown = CliRunner().invoke(app, ["ingest", str(tmp_path / "a.py"), *api.options()])
    assert shown.exit_code == 0
    assert "added a.py: not read as Python but as plain text" in shown.stderr


def test_the_types_are_those_of_the_contract() -> None:
    assert get_args(ContentType) == TYPES


def test_an_unknown_type_is_refused_with_those_there_are(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A")
    shown = CliRunner().invoke(app, ["ingest", str(tmp_path / "a.md"), "--type", "poem"])
    assert shown.exit_code == 2
    assert "conversation" in shown.stderr


def test_a_batch_that_takes_longer_than_a_request_is_handed_in_again(api: ScriptedApi, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A")
    away = (503, {"title": "Service Unavailable", "status": 503})
    api.on("POST /v1/documents", away, (200, {"documents": [{"source": "a.md", "status": "added", "chunks": 1}]}))
    shown = CliRunner().invoke(app, ["ingest", str(tmp_path / "a.md"), *api.options()])
    assert shown.exit_code == 0, shown.output
    assert [asked.body["job"]["done"] for asked in api.asked] == [0, 0]

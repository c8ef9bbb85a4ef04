"""Documents of git repositories."""

import os
import socket
import subprocess
from pathlib import Path
from urllib.parse import quote

import pytest
from ui.cli_server import ScriptedApi
from ui.ingest_echo import Echo

from counterpoint.cli.ingest.files import SkippedPath, walk


def repository(folder: Path) -> None:
    """A repository with one tracked file, one that is not, and a link that leads out of it."""
    (folder / "docs").mkdir(parents=True)
    (folder / "docs" / "a.md").write_text("# A")
    (folder / ".hidden.md").write_text("tracked though hidden")
    (folder / "out.md").symlink_to("/etc/hostname")
    git = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.com"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    (folder / "docs" / "untracked.md").write_text("not yet")


def test_a_name_does_not_depend_on_the_folder_that_the_command_is_given_in(
    echo: Echo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runbooks" / "net").mkdir(parents=True)
    (tmp_path / "runbooks" / "net" / "dns.md").write_text("# DNS")
    asked = []
    for folder, name in ((".", "runbooks"), ("runbooks", "."), ("/", str(tmp_path / "runbooks"))):
        monkeypatch.chdir(tmp_path / folder)
        asked.append(echo.run(name))
    assert asked[0][0]["source"] == "runbooks/net/dns.md"
    assert asked == [asked[0]] * 3
    assert echo.run(str(tmp_path / "runbooks" / "net" / "dns.md"))[0]["source"] == "net/dns.md"
    assert echo.run(str(tmp_path / "runbooks"), "--name", "books")[0]["source"] == "books/net/dns.md"


def test_tracked_files_of_a_repository_are_taken_under_its_name(echo: Echo, tmp_path: Path, api: ScriptedApi) -> None:
    repository(tmp_path / "orders")
    sent = echo.run(str(tmp_path / "orders"), sources=2, code=1)
    assert [one["source"] for one in sent] == ["orders/.hidden.md", "orders/docs/a.md"]
    assert {one["root"] for one in sent} == {f"file://{socket.gethostname()}{quote(str(tmp_path / 'orders'))}"}
    (inside,) = echo.run(str(tmp_path / "orders" / "docs" / "a.md"))
    assert (inside["source"], "root" in inside) == ("orders/docs/a.md", False)


def test_a_repository_elsewhere_is_copied_for_a_while(echo: Echo, tmp_path: Path) -> None:
    repository(tmp_path / "orders.git")
    address = f"file://{tmp_path}/orders.git"
    sent = echo.run(address, sources=2, code=1)
    assert [(one["source"], one["root"]) for one in sent] == [
        ("orders/.hidden.md", address),
        ("orders/docs/a.md", address),
    ]
    assert echo.run(f"file://{tmp_path}/nothing.git", code=1) == []


def test_a_tracked_file_that_was_removed_is_gone(echo: Echo, api: ScriptedApi, tmp_path: Path) -> None:
    repository(tmp_path / "orders")
    (tmp_path / "orders" / "out.md").unlink()
    (tmp_path / "orders" / "docs" / "a.md").unlink()
    items = [{"source": source} for source in ("orders/.hidden.md", "orders/docs/a.md")]
    api.on("GET /v1/documents", (200, {"items": items, "next_cursor": None}))
    first, second = echo.run(str(tmp_path / "orders"))
    assert (first["source"], "gone" in first) == ("orders/.hidden.md", False)
    assert (second["source"], second["gone"]) == ("orders/docs/a.md", True)


def test_git_variables_and_hooks_do_not_change_the_files_of_a_repository(
    echo: Echo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository(tmp_path / "orders")
    repository(tmp_path / "other")
    subprocess.run(["git", "-C", str(tmp_path / "other"), "rm", "-q", "--cached", "docs/a.md"], check=True)
    watcher = tmp_path / "watcher"
    watcher.write_text(f"#!/bin/sh\ntouch {tmp_path}/run\n")
    watcher.chmod(0o755)
    subprocess.run(["git", "-C", str(tmp_path / "orders"), "config", "core.fsmonitor", str(watcher)], check=True)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "other" / ".git" / "index"))
    sent = echo.run(str(tmp_path / "orders"), sources=2, code=1)
    assert [one["source"] for one in sent] == ["orders/.hidden.md", "orders/docs/a.md"]
    assert not (tmp_path / "run").exists()


def test_a_name_that_is_no_utf_8_is_reported_and_the_others_go_on(echo: Echo, tmp_path: Path) -> None:
    docs = os.fsencode(tmp_path / "docs")
    for name in (b"", b"caf\xe9", b".caf\xe9"):
        os.mkdir(docs + b"/" + name)
    for name in (b"a.md", b"caf\xe9.md", b"caf\xe9/b.md", b".\xe9.md"):
        with open(docs + b"/" + name, "w") as file:
            file.write("# A")
    assert [one["source"] for one in echo.run(str(tmp_path / "docs"), code=1)] == ["docs/a.md"]
    found = list(walk([tmp_path / "docs"], tmp_path))
    skipped = {one.path.name: one.reason for one in found if isinstance(one, SkippedPath)}
    assert set(skipped.values()) == {"its name is not UTF-8"}
    assert {name.encode().decode() for name in skipped} == {"caf�", "caf�.md", ".caf�", ".�.md"}

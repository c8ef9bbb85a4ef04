"""A folder with everything that can be wrong in it, through the command line and the whole house."""

import base64
import json
import socket
from pathlib import Path
from typing import Any

import httpx
from ingest.pdf_files import paper
from typer.testing import CliRunner

from counterpoint.cli.main import app
from counterpoint.local.stack import Stack

DATA = Path(__file__).parents[1] / "data"


def fill_folder(folder: Path) -> Path:
    """A folder of documents, good and bad."""
    docs = folder / "docs"
    (docs / "sub").mkdir(parents=True)
    (docs / "guide.md").write_text("# Guide\n\nRestart the kiln gently.")
    (docs / "manual.pdf").write_bytes(paper(["The kiln needs an hour.", ""], "Kiln"))
    (docs / "page.html").write_text("<html><body><h1>Glaze</h1><p>Stir the glaze.</p></body></html>")
    (docs / "lab.ipynb").write_text(json.dumps({"cells": [{"cell_type": "code", "source": "fire()"}]}))
    (docs / "chat.json").write_text(json.dumps([{"speaker": "Ann", "text": "Who has the key?"}]))
    (docs / "app.ts").write_text("export function fire(): void {}")
    (docs / "sub" / "notes.rst").write_text("Notes\n=====\n\nSome.")
    (docs / "broken.py").write_text("def broken(:")
    (docs / "empty.md").write_text("")
    (docs / "image.bin").write_bytes(b"\0\1\2")
    (docs / "latin.txt").write_bytes(b"caf\xe9")
    (docs / "locked.pdf").write_bytes((DATA / "locked.pdf").read_bytes())
    (docs / "loop").symlink_to(docs)
    (docs / "escape.md").symlink_to("/etc/hostname")
    return docs


async def test_a_folder_is_ingested_as_far_as_it_can_be_and_followed(
    stack: Stack, http: httpx.AsyncClient, project: str, tmp_path: Path
) -> None:
    docs = fill_folder(tmp_path)

    def run(code: int = 1) -> tuple[dict[str, Any], dict[str, tuple[str, str | None]]]:
        options = ["--url", stack.endpoints.http, "--token", stack.endpoints.token, "--project", project, "--json"]
        shown = CliRunner().invoke(app, ["ingest", str(docs), *options])
        assert shown.exit_code == code, shown.output
        report = json.loads(shown.stdout)
        return report, {one["source"]: (one["status"], one.get("problem")) for one in report["documents"]}

    report, became = run()
    assert {source: status for source, (status, _) in became.items()} == {
        "docs/app.ts": "added",
        "docs/broken.py": "added",
        "docs/chat.json": "added",
        "docs/guide.md": "added",
        "docs/lab.ipynb": "added",
        "docs/locked.pdf": "refused",
        "docs/manual.pdf": "added",
        "docs/page.html": "added",
        "docs/sub/notes.rst": "added",
    }
    assert became["docs/locked.pdf"][1] == "content is an encrypted PDF: it needs a password"
    assert (became["docs/broken.py"][1] or "").startswith("not read as Python but as plain text: line 1")
    assert became["docs/manual.pdf"][1] == "1 of 2 pages have no text: 2"
    assert {Path(one["path"]).name: one["failed"] for one in report["skipped"]} == {
        "empty.md": False, "image.bin": True, "latin.txt": True, "loop": True, "escape.md": True,
    }  # fmt: skip

    progress = (await http.get(f"/v1/ingests/{report['job']}", params={"project": project})).json()
    assert (progress["state"], progress["documents"], progress["done"]) == ("done", 9, 9)
    assert progress["by_status"] == {"added": 8, "refused": 1}
    assert progress["embedded"] == progress["chunks"] == 8

    found = (await http.post("/v1/search", json={"text": "who has the key", "project": project})).json()
    assert found["items"][0]["source"] == "docs/chat.json"
    kept = (await http.get("/v1/documents", params={"project": project})).json()["items"]
    assert {one["type"] for one in kept} == {
        "typescript", "python", "conversation", "markdown", "notebook", "pdf", "html", "restructuredtext",
    }  # fmt: skip
    assert {one["root"] for one in kept} == {f"file://{socket.gethostname()}{docs.resolve().as_posix()}"}

    _, again = run()
    assert {status for status, _ in again.values()} == {"unchanged", "refused"}

    (docs / "guide.md").unlink()
    (docs / "locked.pdf").unlink()
    (docs / "sub" / "notes.rst").rename(docs / "sub" / "moved.rst")
    await http.post("/v1/documents", json={"source": "docs/other.md", "text": "Not from there.", "project": project})
    _, followed = run()
    assert {source: status for source, (status, _) in followed.items() if status != "unchanged"} == {
        "docs/sub/moved.rst": "added",
        "docs/guide.md": "deleted",
        "docs/sub/notes.rst": "deleted",
    }
    kept = (await http.get("/v1/documents", params={"project": project})).json()["items"]
    assert "docs/other.md" in {one["source"] for one in kept}
    found = (await http.post("/v1/search", json={"text": "restart the kiln gently", "project": project})).json()
    assert "docs/guide.md" not in {item["source"] for item in found["items"]}


async def test_bytes_that_are_larger_than_a_message_are_uploaded_in_parts(
    http: httpx.AsyncClient, project: str
) -> None:
    content = paper([f"Page {n} of the kiln. " + "%" * 900 for n in range(400)])
    assert len(content) > 256 * 1024
    body = {"source": "big.pdf", "content": base64.b64encode(content).decode(), "project": project}
    (became,) = (await http.post("/v1/documents", json=body)).json()["documents"]
    assert (became["status"], became["chunks"]) == ("added", 400)

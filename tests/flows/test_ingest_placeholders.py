"""Reference pages full of placeholders, through the command line and the whole house: none is refused."""

import json
from pathlib import Path

from typer.testing import CliRunner

from counterpoint.cli.main import app
from counterpoint.local.stack import Stack

PAGES = Path(__file__).parents[1] / "data" / "sensitive_docs" / "pages"


def test_reference_pages_are_ingested_as_they_are_and_found(stack: Stack, project: str, tmp_path: Path) -> None:
    options = ["--url", stack.endpoints.http, "--token", stack.endpoints.token, "--project", project, "--json"]
    shown = CliRunner().invoke(app, ["ingest", str(PAGES), *options])
    assert shown.exit_code == 0, shown.output
    became = {Path(each["source"]).name: each["status"] for each in json.loads(shown.stdout)["documents"]}
    assert became == {page.name: "added" for page in PAGES.iterdir()}

    found = CliRunner().invoke(app, ["search", "who to write to when nodes refuse the cookie of the broker", *options])
    text = json.dumps(json.loads(found.stdout)["items"])
    assert "messaging-oncall@acme.io" in text
    assert "[redacted:" not in text

    leak = tmp_path / "leak.md"
    leak.write_text("# Example\n\nplaceholder: password=exampleQ7x" + "Zp2Lm9Vt4Kw\n")
    refused = CliRunner().invoke(app, ["ingest", str(leak), *options])
    assert refused.exit_code == 1, refused.output
    assert json.loads(refused.stdout)["documents"][0]["status"] == "refused"

"""An API that answers for each document that it was sent."""

from typing import Any

from typer.testing import CliRunner
from ui.cli_server import ScriptedApi

from counterpoint.cli.main import app


class Echo:
    """Answers that every document was added, and keeps which documents a folder has."""

    def __init__(self, api: ScriptedApi) -> None:
        self.api = api
        api.on("GET /v1/documents", (200, {"items": [], "next_cursor": None}))

    def run(self, *words: str, sources: int = 1, code: int = 0, **options: Any) -> list[dict[str, Any]]:
        """The documents that a command sends."""
        answer = {"documents": [{"source": f"{n}", "status": "added", "chunks": 1} for n in range(sources)]}
        self.api.on("POST /v1/documents", (200, answer))
        before = len(self.api.asked)
        shown = CliRunner().invoke(app, ["ingest", *words, "--json", *self.api.options()], **options)
        assert shown.exit_code == code, shown.output
        return [one for asked in self.api.asked[before:] if asked.method == "POST" for one in asked.body["documents"]]

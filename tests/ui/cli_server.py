"""A small HTTP server that plays the API to the command line, and keeps what it was asked."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

TOKEN = "a-token"


@dataclass
class ApiRequest:
    """One request as it came."""

    method: str
    path: str
    params: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class ScriptedApi:
    """The answers by `METHOD /path`: a status, and JSON or the text of an event stream. The last one repeats."""

    url: str
    answers: dict[str, list[tuple[int, Any]]] = field(default_factory=dict)
    asked: list[ApiRequest] = field(default_factory=list)

    def on(self, request: str, *answers: tuple[int, Any]) -> None:
        self.answers[request] = list(answers)

    def options(self) -> list[str]:
        return ["--url", self.url, "--token", TOKEN]


@contextmanager
def playing() -> Iterator[ScriptedApi]:
    """The server for a while, on a port of the system's choice."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            parts = urlsplit(self.path)
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            played.asked.append(
                ApiRequest(
                    self.command,
                    parts.path,
                    dict(parse_qsl(parts.query)),
                    {name.lower(): value for name, value in self.headers.items()},
                    json.loads(content) if content else None,
                )
            )
            answers = played.answers.get(f"{self.command} {parts.path}", [(404, {"title": "Not Found", "status": 404})])
            status, value = answers.pop(0) if len(answers) > 1 else answers[0]
            stream = isinstance(value, str)
            content = value.encode() if stream else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/event-stream" if stream else "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = answer

        def log_message(self, *args: Any) -> None:
            """Tests print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        played = ScriptedApi(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield played
        finally:
            server.shutdown()
            thread.join()

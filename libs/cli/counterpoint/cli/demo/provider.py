"""A simulated provider of a language model: it answers every request with one fixed text."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "openai/gpt-4o-mini"
"""The model whose price the answers cost."""


@dataclass
class SimulatedProvider:
    """The address of a provider with OpenAI's API, and the number of requests that it has answered."""

    url: str = ""
    requests: int = field(default=0)

    def environment(self) -> dict[str, str]:
        """Return the variables with which services use this provider."""
        return {
            "COUNTERPOINT_MODEL": MODEL,
            "COUNTERPOINT_RELATIONS_TOKENS": "0",
            "OPENAI_API_BASE": self.url,
            "OPENAI_API_KEY": "simulated",
        }


@contextmanager
def simulated_provider(text: str) -> Iterator[SimulatedProvider]:
    """Run a provider that answers with `text`, on the loopback interface."""
    provider = SimulatedProvider()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            provider.requests += 1
            answer = json.dumps(_completion(text, len(body))).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider.url = f"http://127.0.0.1:{server.server_port}/v1"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield provider
        finally:
            server.shutdown()


@contextmanager
def variables(given: dict[str, str]) -> Iterator[None]:
    """Set environment variables, and restore them afterwards."""
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _completion(text: str, prompt_bytes: int) -> dict[str, Any]:
    prompt, written = prompt_bytes // 4, len(text) // 4
    usage = {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {
        "id": "simulated",
        "object": "chat.completion",
        "created": 0,
        "model": "simulated",
        "choices": [choice],
        "usage": usage,
    }

"""A simulated provider of a language model: it answers every request with one fixed text."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from counterpoint.cli.demo.loopback import loopback_server

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
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }


@contextmanager
def simulated_provider(reply: str | Callable[[str], str]) -> Iterator[SimulatedProvider]:
    """Run a provider that answers with a text, or with a function of the last message, on the loopback interface."""
    provider = SimulatedProvider()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            provider.requests += 1
            request = json.loads(body)
            streams = request.get("stream", False)
            text = reply if isinstance(reply, str) else reply(str(request["messages"][-1]["content"]))
            completion = _completion(text, len(body))
            answer = (_events(completion) if streams else json.dumps(completion)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream" if streams else "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with loopback_server(Handler) as url:
        provider.url = f"{url}/v1"
        yield provider


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


def _events(completion: dict[str, Any]) -> str:
    """Return a completion as the events of a stream."""
    message, usage = completion["choices"][0]["message"], completion.pop("usage")
    parts: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": message}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {"choices": [], "usage": usage},
    ]
    chunks = (json.dumps(completion | {"object": "chat.completion.chunk"} | part) for part in parts)
    return "".join(f"data: {chunk}\n\n" for chunk in (*chunks, "[DONE]"))


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

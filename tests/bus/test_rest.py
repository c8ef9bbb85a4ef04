"""A service at rest does nothing, and what happens wakes it up."""

import asyncio
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
import pytest

from counterpoint.bus import readiness
from counterpoint.bus.health import health_app, http_server, serve
from counterpoint.bus.readiness import Readiness
from counterpoint.bus.streams import ConsumerSpec
from counterpoint.proto.errors import Away


async def test_an_http_server_at_rest_does_not_wake_up_and_its_responses_have_a_date(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    naps = list[float]()
    sleep = asyncio.sleep

    async def nap(delay: float, result: Any = None) -> Any:
        naps.append(delay)
        return await sleep(delay, result)

    monkeypatch.setattr("uvicorn.server.asyncio.sleep", nap)
    server, port = http_server(health_app(lambda: (), {}), "127.0.0.1", 0)
    serving = asyncio.create_task(serve(server))
    async with httpx.AsyncClient(trust_env=False) as http:
        response = await http.get(f"http://127.0.0.1:{port}/livez")
    assert response.headers["server"] == "uvicorn"
    assert parsedate_to_datetime(response.headers["date"]) <= datetime.now(UTC)
    assert naps == []
    server.should_exit = True
    await serving


class ScriptedConnection:
    """A connection of which a test says what answers."""

    def __init__(self) -> None:
        self.on_reconnect: list[Any] = []
        self.connected = True
        self.answers = True
        self.probes = 0

    async def backlog(self, stream: str, durable: str) -> int | None:
        self.probes += 1
        return 0 if self.answers else None

    async def request(self, subject: str, body: bytes, timeout_s: float) -> bytes:
        if not self.answers:
            raise Away("memory")
        return b'{"found": []}'


async def test_lost_memory_and_a_reconnect_are_probed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "_PROBE_S", 3600.0)
    monkeypatch.setattr(readiness, "_MISSING_PROBE_S", 0.0)
    connection: Any = ScriptedConnection()
    spec: Any = type("Spec", (), {"stream": "TASKS", "durable": "manager"})()
    specs: list[ConsumerSpec] = [spec]
    ready = Readiness("manager", connection, specs, 1.0)
    probing = asyncio.create_task(ready.probe())
    async with asyncio.timeout(30):
        await ready.memory.wait()
        ready.lost_memory()
        assert ready.missing() == ("memory",)
        await ready.memory.wait()
        connection.answers = False
        for told in connection.on_reconnect:
            told()
        while ready.missing() != ("memory", "consumers"):  # noqa: ASYNC110
            await asyncio.sleep(0)
        connection.answers = True
        await ready.memory.wait()
        await ready.consumers.wait()
    probing.cancel()
    await asyncio.wait({probing})

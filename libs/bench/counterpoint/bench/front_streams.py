"""Event streams in `counterpoint bench front`: many clients at once, each of which has to get every decision."""

import asyncio
import re
import time
from contextlib import ExitStack
from typing import cast
from urllib.parse import urlsplit

from counterpoint.bench.front_decisions import MARK, commit_decisions, percentile
from counterpoint.bench.report import BenchReport, Measurement, progress
from counterpoint.bus import Service
from counterpoint.local.endpoints import Endpoints

PROJECT = "bench-streams"
CLIENTS, RATE, COUNT = 500, 20.0, 200
WAIT_S, OPENED_AT_ONCE = 60.0, 50
_NUMBER = re.compile(MARK.encode())


class StreamClient(asyncio.Protocol):
    """A client of an event stream. `arrivals` are the times of the decisions by number."""

    def __init__(self, request: bytes) -> None:
        self.arrivals: dict[int, float] = {}
        self.open, self.complete = asyncio.Event(), asyncio.Event()
        self._request = request
        self._count = COUNT
        self._rest = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self._request)

    def expect(self, count: int) -> None:
        """Set `complete` when that many decisions have arrived."""
        self._count = count
        self._check()

    def _check(self) -> None:
        if len(self.arrivals) >= self._count:
            self.complete.set()

    def data_received(self, data: bytes) -> None:
        """Note the decisions."""
        now, text = time.time(), self._rest + data
        if not self.open.is_set() and b": open" in text:
            self.open.set()
        for match in _NUMBER.finditer(text):
            self.arrivals.setdefault(int(match[1]), now)
        self._check()
        self._rest = text[-200:]


async def measure_streams(endpoints: Endpoints, router: Service, report: BenchReport) -> None:
    """Add the rows of event streams."""
    address = urlsplit(endpoints.http)
    request = (
        f"GET /v1/decisions/stream?project={PROJECT} HTTP/1.1\r\nHost: {address.netloc}\r\n"
        f"Authorization: Bearer {endpoints.token}\r\nAccept: text/event-stream\r\n\r\n"
    ).encode()
    clients = [StreamClient(request) for _ in range(CLIENTS)]
    gate, loop = asyncio.Semaphore(OPENED_AT_ONCE), asyncio.get_running_loop()

    async def connect(client: StreamClient) -> None:
        async with gate:
            await loop.create_connection(lambda: client, address.hostname or "", address.port or 80)
            await client.open.wait()

    with ExitStack() as connections:
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(*map(connect, clients))
        for client in clients:
            if client.transport is not None:
                connections.callback(client.transport.close)
        progress(f"{CLIENTS} streams are open")
        committed = await commit_decisions(router, PROJECT, RATE, COUNT)
        for client in clients:
            client.expect(len(committed))
        await asyncio.wait([asyncio.create_task(client.complete.wait()) for client in clients], timeout=WAIT_S)
        report.note_load()
    complete = sum(committed.keys() <= client.arrivals.keys() for client in clients)
    took_ms = [
        (client.arrivals[number] - at) * 1000
        for client in clients
        for number, at in committed.items()
        if number in client.arrivals
    ]
    progress(f"{complete} of {CLIENTS} got all {len(committed)} decisions")
    name = f"{CLIENTS} event streams at {RATE:g} decisions a second"
    report.measures += [
        Measurement(f"{name}: clients that got each one", "clients", (complete,), CLIENTS, at_least=True),
        Measurement(f"{name}: a decision committed to a client, p50", "ms", (percentile(took_ms, 0.5),), None),
        Measurement(f"{name}: a decision committed to a client, p99", "ms", (percentile(took_ms, 0.99),), None),
    ]

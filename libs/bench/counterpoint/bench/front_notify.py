"""Notifications in `counterpoint bench front`: the time from a failure to the body at the notify URL."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import httpx

from counterpoint.bench.report import BenchReport, Measurement, p50, progress

FAILURES, WARM_UP = 40, 5
TARGET_MS = 300.0


class NotifyReceiver:
    """A receiver of webhooks on a free port. It listens from the beginning and answers in `receiving`."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._arrivals: dict[str, tuple[float, Any]] = {}
        self._changed = asyncio.Condition()

    @property
    def url(self) -> str:
        """The notify URL."""
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}/"

    @asynccontextmanager
    async def receiving(self) -> AsyncIterator[None]:
        """Answer requests until the end of the block."""
        server = await asyncio.start_server(self._serve, sock=self._socket)
        async with server:
            yield

    async def of_task(self, task_id: str) -> tuple[float, Any]:
        """Return when the first event of a task arrived, in seconds, and the event."""
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(lambda: task_id in self._arrivals)
        return self._arrivals[task_id]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = int(head.partition("content-length:")[2].split("\r\n")[0])
            event = json.loads(await reader.readexactly(length))
            async with self._changed:
                self._arrivals.setdefault(event["subject"], (time.time(), event))
                self._changed.notify_all()
            writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
            await writer.drain()
        finally:
            writer.close()


async def measure_notify(http: httpx.AsyncClient, receiver: NotifyReceiver, project: str, report: BenchReport) -> None:
    """Add the rows of notifications: failures one after the other, each told by its first event."""
    since_failure, since_event = list[float](), list[float]()
    async with receiver.receiving():
        for number in range(FAILURES + WARM_UP):
            body = {
                "kind": "troubleshoot",
                "description": f"load {number} failed",
                "error_message": f"shard {'abcdefghij'[number % 10]}{number} refused the write",
                "project": project,
            }
            began = time.time()
            task_id = (await http.post("/v1/tasks", json=body)).raise_for_status().json()["task_id"]
            arrived, event = await receiver.of_task(task_id)
            if number >= WARM_UP:
                since_failure.append((arrived - began) * 1000)
                since_event.append((arrived - datetime.fromisoformat(event["time"]).timestamp()) * 1000)
    report.note_load()
    rows = (("an incident", since_failure), ("its first event", since_event))
    for name, durations in rows:
        report.measures.append(
            Measurement(f"{name} -> body at the notify URL, p50", "ms", (p50(durations),), TARGET_MS)
        )
    progress(", ".join(f"{name} told after {p50(durations):.0f} ms" for name, durations in rows))

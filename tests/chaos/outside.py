"""The outside: what another system sees and does, through every break."""

import asyncio
import json
from collections import Counter
from typing import Any

import httpx
import nats
from chaos.load import ERROR, Job
from nats.aio.client import Client
from nats.aio.msg import Msg

from counterpoint.local.endpoints import Endpoints
from counterpoint.proto import subjects


class OutsideSystem:
    """Another system with HTTP, a publisher's and an observer's login. It repeats a request until it is answered."""

    def __init__(self, told: Endpoints, project: str) -> None:
        self.project = project
        self.live: Counter[tuple[str, str, Any]] = Counter()
        self.asked: Counter[tuple[str, str, Any]] = Counter()
        self._told = told
        self.http = httpx.AsyncClient(
            base_url=told.http,
            headers={"Authorization": f"Bearer {told.token}"},
            timeout=httpx.Timeout(30, connect=2),
            limits=httpx.Limits(max_connections=200),
        )
        self._publisher: Client | None = None
        self._observer: Client | None = None

    async def open(self) -> None:
        """Log in on the bus and watch what is shown live."""
        self._publisher = await self._login("publisher")
        self._observer = await self._login("observer")
        await self._observer.subscribe(subjects.live(f"tasks.{self.project}.>"), cb=self._seen)

    async def close(self) -> None:
        """Log out."""
        for client in (self._publisher, self._observer):
            if client is not None:
                await client.close()
        await self.http.aclose()

    async def ask(self, method: str, path: str, **given: Any) -> Any:
        """The answer to a request that may be repeated. 404 and 409 are answers too."""
        params = {"project": self.project} | given.pop("params", {})
        while True:
            try:
                response = await self.http.request(method, path, params=params, **given)
            except httpx.TransportError:
                await asyncio.sleep(0.2)
                continue
            if response.status_code < 500:
                return response
            await asyncio.sleep(0.2)

    async def submit(self, job: Job) -> None:
        """Hand a task in and be sure that it is taken."""
        if not job.by_nats:
            response = await self.ask("POST", "/v1/tasks", json={"task_id": job.task_id, **job.body})
            assert response.status_code in (200, 202), response.text
            return
        assert self._publisher is not None
        js = self._publisher.jetstream(timeout=2)
        headers = {
            "ce-specversion": "1.0",
            "ce-id": job.task_id,
            "ce-source": "chaos",
            "ce-type": "counterpoint.task.submit.v1",
            "Nats-Msg-Id": job.task_id,
        }
        subject = subjects.of("counterpoint.task.submit.v1", self.project)
        while True:
            try:
                await js.publish(subject, json.dumps({"task_id": job.task_id, **job.body}).encode(), headers=headers)
                return
            except (nats.errors.Error, OSError, TimeoutError):
                await asyncio.sleep(0.2)

    async def report(self, task_id: str, attempt: int, outcome: str) -> None:
        """Say how an attempt went. A report that may have arrived is asked about before it is repeated."""
        body = {"attempt": attempt, "outcome": outcome}
        if outcome == "failed":
            body["error_message"] = ERROR
        while True:
            try:
                response = await self.http.post(
                    f"/v1/tasks/{task_id}/outcome", params={"project": self.project}, json=body
                )
            except httpx.ConnectError:
                await asyncio.sleep(0.2)
                continue
            except httpx.TransportError:
                response = None
            self.asked[task_id, "counterpoint.task.outcome_reported.v1", attempt] += 1
            if response is not None and response.status_code < 500:
                assert response.status_code == 202, response.text
                return
            await asyncio.sleep(0.2)

    async def _login(self, user: str) -> Client:
        login = self._told.users[user]

        async def quiet(_: Exception) -> None:
            return

        return await nats.connect(
            self._told.nats,
            user=login.user,
            password=login.password,
            inbox_prefix=login.inbox_prefix.encode(),
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.2,
            error_cb=quiet,
        )

    async def _seen(self, message: Msg) -> None:
        headers = message.headers or {}
        self.live[key_of(headers["ce-type"], json.loads(message.data))] += 1


def key_of(message_type: str, body: dict[str, Any]) -> tuple[str, str, Any]:
    """Return the unique key of a message: (task, type, attempt). A reassessment of an attempt has a key of its own."""
    attempt = body.get("attempt")
    return (
        body["task_id"],
        message_type,
        f"{attempt} {body['purpose']}" if body.get("purpose") == "reassess" else attempt,
    )


class Follower:
    """A stream that is read through every break: it resumes after the last event that was seen."""

    def __init__(self, outside: OutsideSystem, path: str) -> None:
        self._outside = outside
        self.path = path
        self.ids: list[str] = []
        self.problems: list[str] = []
        self._last = 0

    async def run(self, quiet_s: float | None = None) -> None:
        """Read until cancelled, or with `quiet_s` until no event came for so long, or there is nothing to read."""
        while True:
            try:
                await self._read(quiet_s)
            except httpx.TransportError:
                await asyncio.sleep(0.2)
            except TimeoutError:
                return

    async def _read(self, quiet_s: float | None) -> None:
        headers = {"Last-Event-ID": str(self._last)}
        http, params = self._outside.http, {"project": self._outside.project}
        async with http.stream("GET", self.path, params=params, headers=headers) as response:
            if response.status_code == 404 and quiet_s is not None:
                raise TimeoutError
            if response.status_code != 200:
                await asyncio.sleep(0.3)
                return
            seq, data = 0, None
            lines = response.aiter_lines()
            while True:
                try:
                    line = await asyncio.wait_for(anext(lines), quiet_s)
                except StopAsyncIteration:
                    return
                if line.startswith("event: gap"):
                    self.problems.append(f"{self.path}: gap after {self._last}")
                elif line.startswith("id: "):
                    seq = int(line[4:])
                elif line.startswith("data: "):
                    data = line[6:]
                elif not line:
                    if seq and data is not None:
                        if seq <= self._last:
                            self.problems.append(f"{self.path}: {seq} after {self._last}")
                        self._last, event = seq, json.loads(data)
                        self.ids.append(event["id"])
                        self.event(event)
                    seq, data = 0, None

    def event(self, event: dict[str, Any]) -> None:
        """One more event; what a subclass does with it."""


class LogReader(Follower):
    """All that the log holds of a task."""

    def __init__(self, outside: OutsideSystem, path: str) -> None:
        super().__init__(outside, path)
        self.events: list[dict[str, Any]] = []

    def event(self, event: dict[str, Any]) -> None:
        """Keep it."""
        self.events.append(event)

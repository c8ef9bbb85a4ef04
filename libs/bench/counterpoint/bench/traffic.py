"""Tasks at a constant rate from outside, and a count of what was lost, doubled or left without an answer.

A request has its answer with any HTTP status below 500. A client waits after 503 as long as `Retry-After` says, and
after a refused connection for a moment, and sends the same request again. It does so too after a connection that broke
with the request sent, and after another status from 500 on, which are faults and counted: the id of the task makes that
safe. A request has none if there is still no such answer after `ANSWER_S`.
"""

import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
import nats
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from counterpoint.local.endpoints import Endpoints
from counterpoint.proto import subjects
from counterpoint.proto.ids import new_id

ANSWER_S = 120.0
"""Seconds after which a request has no answer."""
END_S = 180.0
"""Seconds after which a task that has not ended is lost."""
_REFUSED_S = 0.1
_STEPS = frozenset({"submitted", "routed", "delegated", "worked"})
_DOCUMENT = "# Archive\n\nPapers of the archive are kept for nine years, by decision of finance.\n"
_QUESTION = "For how many years are papers of the archive kept?"
_ERROR = "could not resolve ldap.internal: DNS lookup timed out after 5 s (resolver 10.20.0.2:53)"


@dataclass
class TrafficCount:
    """The count of a run. `ok` if nothing was lost, doubled, dead or unanswered, and the audit log is whole."""

    tasks: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    verified: bool = False
    answers: Counter[int] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)
    """Requests sent again after `503`, a `refused` or `broken` connection, a `timeout` of the client, or an `error`,
    another status from 500."""
    longest_s: float = 0.0
    """The longest time from a request to its answer, without requests that wait for a task."""

    @property
    def ok(self) -> bool:
        """Whether the traffic suffered nothing but time."""
        return self.verified and not (self.lost or self.doubled or self.unanswered or self.dead)


class Traffic:
    """Tasks of three kinds in one project: questions by HTTP, questions by the bus, and attempts with an outcome."""

    def __init__(self, endpoints: Endpoints, project: str, in_flight: int) -> None:
        self.count = TrafficCount()
        self._slots = asyncio.Semaphore(in_flight)
        self._project = project
        self._messages: Counter[tuple[str, str, Any]] = Counter()
        self._reports: Counter[str] = Counter()
        self._endpoints = endpoints
        self._http = httpx.AsyncClient(
            base_url=endpoints.http,
            headers={"Authorization": f"Bearer {endpoints.token}"},
            timeout=httpx.Timeout(30, connect=5),
            limits=httpx.Limits(max_connections=500),
            trust_env=False,
        )
        self._clients: list[Client] = []
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopped = asyncio.Event()

    async def open(self) -> None:
        """Ingest the document that the questions are about, and watch the messages of the project."""
        for user in ("publisher", "observer"):
            self._clients.append(await self._login(user))
        await self._clients[1].subscribe(subjects.live_kind("tasks", self._project), cb=self._seen)
        await self._clients[1].flush()
        body = {"project": self._project, "documents": [{"source": "archive.md", "text": _DOCUMENT}]}
        (await self._ask("POST", "/v1/documents", json=body)).raise_for_status()

    async def close(self) -> None:
        """Disconnect."""
        for client in self._clients:
            await client.close()
        await self._http.aclose()

    async def submit(self, rate: float) -> None:
        """Start `rate` tasks a second until `stop`, fewer while too many are in flight."""
        due = time.monotonic()
        for kind in _kinds():
            await self._slots.acquire()
            due = max(due + 1 / rate, time.monotonic())
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), due - time.monotonic())
            if self._stopped.is_set():
                return
            task_id = new_id()
            self._tasks[task_id] = asyncio.create_task(kind(self, task_id))
            self._tasks[task_id].add_done_callback(lambda _: self._slots.release())

    def stop(self) -> None:
        """Make `submit` return."""
        self._stopped.set()

    def began(self) -> int:
        """Return how many tasks have been started."""
        return len(self._tasks)

    def ended(self) -> int:
        """Return how many tasks have ended."""
        return sum(task.done() for task in self._tasks.values())

    async def finish(self) -> TrafficCount:
        """Wait for the end of all tasks and return the count."""
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=END_S)
        count = self.count
        count.tasks = len(self._tasks)
        for task_id, task in self._tasks.items():
            if not task.done():
                task.cancel()
                count.lost.append(f"{task_id}: has not ended")
            elif (error := task.exception()) is not None:
                count.lost.append(f"{task_id}: {error}")
        await self._compare()
        return count

    async def _compare(self) -> None:
        """Compare the tasks with the list and with the messages that were seen."""
        count = self.count
        listed = Counter([task["task_id"] async for task in self._all("/v1/tasks")])
        count.lost += [f"{task_id}: in no list" for task_id in self._tasks if not listed[task_id]]
        count.doubled += [f"{task_id}: {n} times in the list" for task_id, n in listed.items() if n > 1]
        steps = defaultdict[str, set[str]](set)
        for (task_id, kind, attempt), n in self._messages.items():
            steps[task_id].add(kind)
            if n > max(1, self._reports[task_id] if kind == "outcome_reported" else 1):
                count.doubled.append(f"{task_id}: {kind} of attempt {attempt}, {n} times")
        for task_id in self._tasks:
            if missing := _STEPS - steps[task_id]:
                count.lost.append(f"{task_id}: no {', '.join(sorted(missing))}")
        count.dead = [f"{each['code']} {each['subject']}" async for each in self._all("/v1/dead-letters")]
        count.verified = (await self._ask("GET", "/v1/audit/verify")).json()["ok"]

    async def by_http(self, task_id: str) -> None:
        """Submit a question and wait for its end."""
        body = {"task_id": task_id, "kind": "question", "description": _QUESTION}
        (await self._ask("POST", "/v1/tasks", json=body)).raise_for_status()
        await self._until(task_id, "completed")

    async def by_bus(self, task_id: str) -> None:
        """Publish a question until the stream acknowledges it, and wait for its end."""
        body = {"task_id": task_id, "kind": "question", "description": _QUESTION}
        stream, subject = self._clients[0].jetstream(), subjects.of("counterpoint.task.submit.v1", self._project)
        for _ in self._patience(f"publish {task_id}"):
            try:
                await stream.publish(subject, json.dumps(body).encode(), headers={"Nats-Msg-Id": task_id})
                break
            except (nats.errors.Error, nats.js.errors.Error, TimeoutError):
                await asyncio.sleep(_REFUSED_S)
        await self._until(task_id, "completed")

    async def with_outcome(self, task_id: str) -> None:
        """Submit a failure, report how the proposal did, and wait for the end."""
        body = {"task_id": task_id, "kind": "troubleshoot", "description": "a login fails", "error_message": _ERROR}
        (await self._ask("POST", "/v1/tasks", json=body)).raise_for_status()
        task = await self._until(task_id, "completed", "input_required")
        report = {"attempt": task.get("attempt") or 1, "outcome": "succeeded", "note": "restarted the resolver"}
        (await self._ask("POST", f"/v1/tasks/{task_id}/outcome", reported=task_id, json=report)).raise_for_status()
        await self._until(task_id, "completed")

    async def _until(self, task_id: str, *states: str) -> dict[str, Any]:
        while True:
            response = await self._ask("GET", f"/v1/tasks/{task_id}", params={"wait": 10})
            if response.status_code == httpx.codes.OK:
                task: dict[str, Any] = response.json()
                if task["state"] in states:
                    return task
            await asyncio.sleep(_REFUSED_S)

    async def _ask(self, method: str, path: str, reported: str | None = None, **given: Any) -> httpx.Response:
        """Send a request until it has its answer. Raises `TimeoutError` without one."""
        given["params"] = {"project": self._project, **given.get("params", {})}
        began = time.monotonic()
        for _ in self._patience(f"{method} {path}"):
            try:
                response = await self._http.request(method, path, **given)
            except httpx.ConnectError:
                self.count.retries["refused"] += 1
                await asyncio.sleep(_REFUSED_S)
                continue
            except httpx.TransportError as error:
                self.count.retries["timeout" if isinstance(error, httpx.TimeoutException) else "broken"] += 1
                self._reports[reported or ""] += 1
                continue
            self._reports[reported or ""] += 1
            if response.is_server_error:
                is_away = response.status_code == httpx.codes.SERVICE_UNAVAILABLE
                self.count.retries["503" if is_away else "error"] += 1
                await asyncio.sleep(float(response.headers["Retry-After"]) if is_away else _REFUSED_S)
                continue
            self.count.answers[response.status_code] += 1
            if "wait" not in given["params"]:
                self.count.longest_s = max(self.count.longest_s, time.monotonic() - began)
            return response
        raise TimeoutError(f"no answer to {method} {path}")

    def _patience(self, request: str) -> Iterator[None]:
        """Yield as long as a request may be sent again; then count it as unanswered."""
        until = time.monotonic() + ANSWER_S
        while time.monotonic() < until:
            yield
        self.count.unanswered.append(request)

    async def _all(self, path: str) -> AsyncIterator[dict[str, Any]]:
        cursor: dict[str, str] = {}
        while True:
            page = (await self._ask("GET", path, params={"limit": "200", **cursor})).json()
            for item in page["items"]:
                yield item
            if not page.get("next_cursor"):
                return
            cursor = {"cursor": page["next_cursor"]}

    async def _login(self, user: str) -> Client:
        return await nats.connect(
            self._endpoints.nats,
            **self._endpoints.users[user].arguments,
            max_reconnect_attempts=-1,
            reconnect_time_wait=_REFUSED_S,
        )

    async def _seen(self, message: Msg) -> None:
        kind = (message.headers or {})["ce-type"].split(".")[2]
        body = json.loads(message.data)
        self._messages[body["task_id"], kind, body.get("attempt")] += 1


def _kinds() -> Iterator[Any]:
    while True:
        yield from (Traffic.by_http, Traffic.by_bus, Traffic.by_http, Traffic.with_outcome)


@asynccontextmanager
async def traffic(endpoints: Endpoints, project: str, rate: float, in_flight: int) -> AsyncIterator[Traffic]:
    """Keep tasks coming for the length of the block, `rate` a second with at most `in_flight` at once. Then count."""
    running = Traffic(endpoints, project, in_flight)
    await running.open()
    submitting = asyncio.create_task(running.submit(rate))
    try:
        yield running
        running.stop()
        await submitting
        await running.finish()
    finally:
        submitting.cancel()
        await running.close()

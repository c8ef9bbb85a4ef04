"""A bridge between MCP over standard input and output, and the endpoint `/mcp`: one JSON-RPC message a line."""

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
from httpx_sse import EventSource

from counterpoint.cli.address import Address

Message = dict[str, Any]

_TIMEOUT = httpx.Timeout(None, connect=5.0)
_RETRY_S = 1.0
_ACCEPT = {"Accept": "application/json, text/event-stream"}
_VERSION, _SESSION = "MCP-Protocol-Version", "Mcp-Session-Id"
_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_NAMED = {
    "tools/call": "name", "prompts/get": "name", "resources/read": "uri",
    "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId",
}  # fmt: skip
"""Methods and the parameter that the header `Mcp-Name` repeats, from protocol 2026-07-28 on."""
_UNREACHABLE, _REFUSED = -32000, -32001


class Bridge:
    """One client at the endpoint. `write` takes each message for the client.

    Clients before protocol 2026-07-28 have a session, which is opened again when the router has lost it.
    """

    def __init__(self, http: httpx.AsyncClient, url: httpx.URL, write: Callable[[Message], None]) -> None:
        self._http = http
        self._url = url
        self._write = write
        self._session: dict[str, str] = {}
        self._initialize: Message | None = None
        self._running: dict[Any, asyncio.Task[None]] = {}
        self._events: asyncio.Task[None] | None = None

    async def run(self, lines: AsyncIterator[bytes]) -> None:
        """Forward messages until `lines` ends."""
        try:
            async for line in lines:
                if line.strip():
                    await self._take(line)
        finally:
            tasks = [*self._running.values(), *([self._events] if self._events else ())]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            self._write(_error(None, -32700, "is not valid JSON"))
            return
        if not isinstance(message, dict):
            self._write(_error(None, -32600, "is not a JSON-RPC message"))
            return
        method, message_id = message.get("method"), message.get("id")
        if method == "initialize":
            self._initialize, self._session = message, {}
            await self._forward(message)
        elif method is None or message_id is None:
            await self._notify(message)
        else:
            task = asyncio.create_task(self._forward(message))
            self._running[message_id] = task
            task.add_done_callback(lambda _: self._running.pop(message_id, None))

    async def _notify(self, message: Message) -> None:
        """Forward a notification, or the client's answer to a request of the server."""
        cancelled = (message.get("params") or {}).get("requestId")
        if message.get("method") == "notifications/cancelled" and not self._session:
            # Without a session the end of the request is its cancellation.
            if task := self._running.get(cancelled):
                task.cancel()
            return
        await self._forward(message)
        if message.get("method") == "notifications/initialized" and _SESSION in self._session:
            self._events = asyncio.create_task(self._server_events())

    async def _forward(self, message: Message) -> None:
        try:
            await self._post(message)
        except httpx.TransportError as failure:
            reason = str(failure) or type(failure).__name__
            text = f"no response from {self._url} ({reason}); start the stack with `counterpoint up`"
            self._answer(message, _UNREACHABLE, text)

    async def _post(self, message: Message, *, again: bool = False) -> None:
        headers = self._headers(message)
        async with self._http.stream("POST", self._url, json=message, headers=headers) as response:
            if response.is_success:
                async for reply in _messages(response):
                    self._keep_session(message, reply, response)
                    self._write(reply)
                return
            body = await response.aread()
        if response.status_code == 404 and self._session and not again:
            await self._open_again()
            await self._post(message, again=True)
            return
        reply = _json(body)
        if "jsonrpc" in reply:
            self._write(reply if reply.get("id") is not None else {**reply, "id": message.get("id")})
        else:
            self._answer(message, _REFUSED, _problem_text(response.status_code, reply))

    def _headers(self, message: Message) -> dict[str, str]:
        method, params = message.get("method"), message.get("params") or {}
        version = (params.get("_meta") or {}).get(_VERSION_KEY) if isinstance(params, dict) else None
        if version is None:
            return {**_ACCEPT, **self._session}
        named = params.get(_NAMED.get(str(method), ""))
        name = {"Mcp-Name": _header_value(str(named))} if named is not None else {}
        return {**_ACCEPT, _VERSION: str(version), "Mcp-Method": str(method), **name}

    def _keep_session(self, message: Message, reply: Message, response: httpx.Response) -> None:
        if message.get("method") == "initialize" and "result" in reply:
            session = response.headers.get(_SESSION)
            version = reply["result"].get("protocolVersion")
            self._session = {_VERSION: str(version)} | ({_SESSION: session} if session else {})

    async def _open_again(self) -> None:
        initialize, self._session = self._initialize or {}, {}
        async with self._http.stream("POST", self._url, json=initialize, headers=_ACCEPT) as response:
            async for reply in _messages(response):
                self._keep_session(initialize, reply, response)
        initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await self._http.post(self._url, json=initialized, headers={**_ACCEPT, **self._session})

    async def _server_events(self) -> None:
        """Write what the server sends by itself, until the session has ended."""
        while True:
            headers = {**self._session, "Accept": "text/event-stream"}
            try:
                async with self._http.stream("GET", self._url, headers=headers) as response:
                    if response.is_success:
                        async for message in _messages(response):
                            self._write(message)
                    elif response.status_code < 500 and response.status_code != 404:
                        return
            except httpx.TransportError:
                pass
            await asyncio.sleep(_RETRY_S)

    def _answer(self, message: Message, code: int, text: str) -> None:
        if message.get("method") is not None and message.get("id") is not None:
            self._write(_error(message["id"], code, text))


async def serve(address: Address, query: dict[str, str]) -> None:
    """Bridge the standard streams of this process until standard input ends."""

    def write(message: Message) -> None:
        sys.stdout.write(json.dumps(message, ensure_ascii=False) + "\n")
        sys.stdout.flush()

    async def lines() -> AsyncIterator[bytes]:
        while line := await asyncio.to_thread(sys.stdin.buffer.readline):
            yield line

    url = httpx.URL(f"{address.url}/mcp", params=query)
    headers = {"Authorization": f"Bearer {address.token}"}
    verify = address.verification()
    async with httpx.AsyncClient(headers=headers, timeout=_TIMEOUT, trust_env=False, verify=verify) as http:
        await Bridge(http, url, write).run(lines())


async def _messages(response: httpx.Response) -> AsyncIterator[Message]:
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        async for event in EventSource(response).aiter_sse():
            if event.data:
                yield json.loads(event.data)
    elif body := await response.aread():
        yield json.loads(body)


def _json(body: bytes) -> Message:
    try:
        value = json.loads(body)
    except ValueError:
        return {"detail": body.decode(errors="replace")[:200]}
    return value if isinstance(value, dict) else {}


def _problem_text(status: int, problem: Message) -> str:
    fields = "; ".join(f"{each.get('field')}: {each.get('problem')}" for each in problem.get("errors", ()))
    return f"{problem.get('code', f'HTTP {status}')}: {fields or problem.get('detail', '')}"


def _header_value(value: str) -> str:
    """Return a value that survives a header field."""
    if value.isascii() and value.isprintable() and value == value.strip() and not value.startswith("=?"):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def _error(message_id: Any, code: int, text: str) -> Message:
    return {"jsonrpc": "2.0", "id": message_id, "error": {"code": code, "message": text}}

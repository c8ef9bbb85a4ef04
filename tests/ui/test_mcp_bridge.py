"""The bridge of `counterpoint mcp`, message by message: sessions, cancellation, and what is not a message."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx

from counterpoint.cli.mcp_bridge import Bridge

URL = httpx.URL("http://router.invalid/mcp")
INITIALIZE = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}


class Router:
    """A router that knows one session at a time. `seen` holds its requests: method, session, headers."""

    def __init__(self) -> None:
        self.session = "one"
        self.seen: list[tuple[str | None, str | None, httpx.Headers]] = []
        self.held = asyncio.Event()
        self.released = asyncio.Event()

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        """Answer a request."""
        session = request.headers.get("mcp-session-id")
        if request.method == "GET":
            return httpx.Response(405)
        message = json.loads(request.content)
        method = message.get("method")
        self.seen.append((method, session, request.headers))
        if method == "initialize":
            body = {"jsonrpc": "2.0", "id": message["id"], "result": {"protocolVersion": "2025-11-25"}}
            return httpx.Response(200, json=body, headers={"mcp-session-id": self.session})
        if session is not None and session != self.session:
            return httpx.Response(404, json={"code": "not_found"})
        if "id" not in message:
            return httpx.Response(202)
        if method == "hold":
            self.held.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.released.set()
        text = f"data: {json.dumps({'jsonrpc': '2.0', 'id': message['id'], 'result': {'of': method}})}\n\n"
        return httpx.Response(200, text=text, headers={"content-type": "text/event-stream"})


class Talk:
    """A client that writes lines, and reads what is written to it."""

    def __init__(self, router: Callable[[httpx.Request], Any]) -> None:
        self.lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.replies: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.http = httpx.AsyncClient(transport=httpx.MockTransport(router))
        bridge = Bridge(self.http, URL, self.replies.put_nowait)
        self.running = asyncio.create_task(bridge.run(self._read()))

    async def _read(self) -> AsyncIterator[bytes]:
        while (line := await self.lines.get()) is not None:
            yield line

    def say(self, message: Any) -> None:
        """Write a line."""
        self.lines.put_nowait(message if isinstance(message, bytes) else json.dumps(message).encode())

    async def reply(self) -> dict[str, Any]:
        """The next message."""
        return await asyncio.wait_for(self.replies.get(), 30)

    async def end(self) -> None:
        """End the input, and wait for the bridge to end."""
        self.lines.put_nowait(None)
        await asyncio.wait_for(self.running, 30)
        await self.http.aclose()


async def test_a_session_that_the_router_lost_is_opened_again() -> None:
    router = Router()
    talk = Talk(router)
    talk.say(INITIALIZE)
    assert (await talk.reply())["id"] == 0
    talk.say(INITIALIZED)
    talk.say({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert (await talk.reply())["result"] == {"of": "tools/list"}
    router.session = "two"
    talk.say({"jsonrpc": "2.0", "id": 2, "method": "prompts/list"})
    assert await talk.reply() == {"jsonrpc": "2.0", "id": 2, "result": {"of": "prompts/list"}}
    talk.say({"jsonrpc": "2.0", "id": 3, "method": "tools/list"})
    assert (await talk.reply())["id"] == 3
    await talk.end()
    assert talk.replies.empty()
    assert [(method, session) for method, session, _ in router.seen] == [
        ("initialize", None),
        ("notifications/initialized", "one"),
        ("tools/list", "one"),
        ("prompts/list", "one"),
        ("initialize", None),
        ("notifications/initialized", "two"),
        ("prompts/list", "two"),
        ("tools/list", "two"),
    ]
    assert all(headers["mcp-protocol-version"] == "2025-11-25" for _, session, headers in router.seen if session)


async def test_a_newer_request_names_its_version_method_and_target_in_headers() -> None:
    router = Router()
    talk = Talk(router)
    for number, (method, params) in enumerate(
        [
            ("tools/call", {"name": "get_task"}),
            ("resources/read", {"uri": "card://größer"}),
            ("tools/list", {}),
        ]
    ):
        talk.say({"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, "_meta": META}})
        await talk.reply()
    await talk.end()
    headers = [headers for _, _, headers in router.seen]
    assert [each["mcp-method"] for each in headers] == ["tools/call", "resources/read", "tools/list"]
    assert [each.get("mcp-name") for each in headers] == ["get_task", "=?base64?Y2FyZDovL2dyw7bDn2Vy?=", None]
    assert {each["mcp-protocol-version"] for each in headers} == {"2026-07-28"}


async def test_a_cancelled_request_ends_at_the_router_and_others_go_on() -> None:
    router = Router()
    talk = Talk(router)
    talk.say({"jsonrpc": "2.0", "id": 7, "method": "hold", "params": {"_meta": META}})
    await asyncio.wait_for(router.held.wait(), 30)
    talk.say({"jsonrpc": "2.0", "id": 8, "method": "tools/list", "params": {"_meta": META}})
    assert (await talk.reply())["id"] == 8
    talk.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}})
    await asyncio.wait_for(router.released.wait(), 30)
    await talk.end()
    assert talk.replies.empty()


async def test_an_illegal_message_gets_an_error_and_the_next_is_served() -> None:
    talk = Talk(Router())
    for line, code in ((b"{", -32700), (b"[]", -32600)):
        talk.say(line)
        assert (await talk.reply())["error"]["code"] == code
    talk.say(b"\n")
    talk.say({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert (await talk.reply())["id"] == 1
    await talk.end()

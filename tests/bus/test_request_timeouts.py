"""Half-sent requests on a real server: each is let go of, and whole ones may take as long as they like."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from counterpoint.bus import request_timeouts
from counterpoint.bus.health import http_server, serve

HEAD = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n"


@pytest.fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    """A server that answers with the length of the body, when `go` is set; patient for a moment alone."""
    monkeypatch.setattr(request_timeouts, "HEAD_TIMEOUT_S", 0.2)
    monkeypatch.setattr(request_timeouts, "BODY_TIMEOUT_S", 0.2)

    async def length(request: Request) -> Response:
        body = await request.body()
        if body == b"slow!":
            await asyncio.sleep(0.6)
        return PlainTextResponse(str(len(body)))

    server, port = http_server(Starlette(routes=[Route("/", length, methods=["POST"])]), "127.0.0.1", 0)
    serving = asyncio.create_task(serve(server))
    yield port
    server.should_exit = True
    await serving


async def _said(port: int, *parts: bytes) -> bytes:
    """All that a connection says, to its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        return await asyncio.wait_for(reader.read(), 30)
    finally:
        writer.close()


@pytest.mark.parametrize("parts", [(), (b"POST / HT",), (HEAD,), (HEAD, b"\r\n", b"hal")], ids=len)
async def test_a_half_sent_request_is_let_go_of(port: int, parts: tuple[bytes, ...]) -> None:
    assert await _said(port, *parts) == b""


async def test_a_request_with_two_lengths_is_refused_and_the_bytes_after_it_are_no_request(port: int) -> None:
    """By one of them a proxy takes the rest for the request of somebody else."""
    rest = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx"
    said = await _said(port, HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + rest)
    assert said.startswith(b"HTTP/1.1 400 ")
    assert said.count(b"HTTP/1.1 ") == 1


async def test_half_of_a_second_request_is_dropped_after_the_first_answer(port: int) -> None:
    said = await _said(port, HEAD + b"\r\nwhole", b"POST / HT")
    assert said.startswith(b"HTTP/1.1 200 OK")
    assert said.endswith(b"5")


async def test_the_timeout_does_not_limit_work_on_a_whole_request(port: int) -> None:
    said = await _said(port, HEAD + b"Connection: close\r\n\r\nslow!")
    assert said.startswith(b"HTTP/1.1 200 OK")
    assert said.endswith(b"5")


@pytest.mark.parametrize("path", ["/", "/missing"])
async def test_a_browser_takes_no_reply_for_another_type_than_the_one_it_states(port: int, path: str) -> None:
    said = await _said(port, f"GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode())
    assert said.lower().count(b"x-content-type-options: nosniff") == 1

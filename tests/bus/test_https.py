"""A server with certificate files speaks TLS only, and the command trusts the certificate of its own stack alone."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from counterpoint.bus.health import health_app, http_server, serve
from counterpoint.cli.address import Address

TLS = Path(__file__).parents[1] / "data" / "tls"


def trusting(certificate: str | Path, *, pinned: bool = True) -> httpx.AsyncClient:
    verify = Address("", "", TLS / certificate, pinned=pinned).verification()
    return httpx.AsyncClient(verify=verify, trust_env=False)


@pytest_asyncio.fixture
async def port() -> AsyncIterator[int]:
    """The port of a server with the certificate of counterpoint.example.com."""
    app = health_app(lambda: (), {})
    server, port = http_server(app, "127.0.0.1", 0, certificate=TLS / "cert.pem", key=TLS / "key.pem")
    serving = asyncio.create_task(serve(server))
    yield port
    server.should_exit = True
    await serving


async def test_the_pinned_certificate_is_accepted_for_any_name(port: int) -> None:
    async with trusting("cert.pem") as http:
        assert (await http.get(f"https://127.0.0.1:{port}/livez")).text == "ok"


async def test_only_the_first_certificate_of_a_pinned_chain_is_trusted(port: int, tmp_path: Path) -> None:
    ours, other = ((TLS / name).read_text() for name in ("cert.pem", "other.pem"))
    (tmp_path / "ours").write_text(ours + other)
    (tmp_path / "other").write_text(other + ours)
    async with trusting(tmp_path / "ours") as http:
        assert (await http.get(f"https://127.0.0.1:{port}/livez")).text == "ok"
    async with trusting(tmp_path / "other") as http:
        with pytest.raises(httpx.ConnectError, match="certificate"):
            await http.get(f"https://127.0.0.1:{port}/livez")


async def test_another_certificate_and_another_name_are_refused(port: int) -> None:
    for client in (trusting("other.pem"), trusting("cert.pem", pinned=False)):
        async with client as http:
            with pytest.raises(httpx.ConnectError, match="certificate"):
                await http.get(f"https://127.0.0.1:{port}/livez")


async def test_there_is_no_answer_without_tls(port: int) -> None:
    async with httpx.AsyncClient(trust_env=False) as http:
        with pytest.raises(httpx.TransportError):
            await http.get(f"http://127.0.0.1:{port}/livez")

"""The official conformance suite against the endpoint, as it is but for the suite's own tools and a token."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest
from contract.node_client import Node, NodeClient, install
from starlette.types import ASGIApp, Receive, Scope, Send
from ui import mcp_front as front_module
from ui.conformance_tools import add_conformance
from ui.mcp_front import mcp_front

from counterpoint.bus.health import http_server
from counterpoint.router.mcp import server as server_module
from counterpoint.router.mcp.endpoint import McpEndpoint

pytestmark = [pytest.mark.timeout(400), pytest.mark.filterwarnings("ignore:The (logging|sampling) capability")]
SOURCE = Path(__file__).parent / "conformance"
SUITE = "node_modules/@modelcontextprotocol/conformance/dist/index.js"
INSTALLED = pytest.mark.parametrize(
    ("options", "scenarios"),
    [(("--requirements", "2026-07-28"), 37), (("--suite", "all", "--spec-version", "2025-11-25"), 33)],
    ids=("2026-07-28", "2025-11-25"),
)


@pytest.fixture(scope="module")
def suite() -> NodeClient:
    """The installed suite. In CI it must be there."""
    try:
        return install(Node.of_wheel(), source=SOURCE, files=("package.json", "package-lock.json"))
    except (LookupError, subprocess.SubprocessError) as failure:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"the suite cannot be installed from npm: {failure}")


class WithToken:
    """The endpoint for a client that sends no token."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.token = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Add the token."""
        if scope["type"] == "http":
            scope = {**scope, "headers": [*scope["headers"], (b"authorization", f"Bearer {self.token}".encode())]}
        await self.app(scope, receive, send)


@INSTALLED
async def test_every_scenario_passes(
    suite: NodeClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: tuple[str, ...], scenarios: int
) -> None:
    made = server_module.server
    added: list[WithToken] = []

    def with_suite() -> object:
        server = made()
        add_conformance(server)
        return server

    def with_token(app: McpEndpoint, host: str, port: int) -> object:
        added.append(WithToken(app))
        return http_server(added[0], host, port)

    monkeypatch.setattr(server_module, "server", with_suite)
    monkeypatch.setattr(server_module, "lists_all_tools", lambda: True)
    monkeypatch.setattr(front_module, "http_server", with_token)
    async with mcp_front(principal_cache_s=600.0) as front:
        added[0].token = front.house.token_of("me")
        arguments = ("server", "--url", f"{front.url}/mcp", "--output-dir", str(tmp_path), *options)
        process = await asyncio.create_subprocess_exec(
            *suite.command(*arguments, script=SUITE), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output = (await process.communicate())[0].decode()
    summary = output.partition("=== SUMMARY ===")[2]
    results, _, _ = summary.partition("Total:")
    scored = [line for line in results.splitlines() if line.startswith("✓")]
    assert process.returncode == 0, summary
    assert len(scored) >= scenarios, summary

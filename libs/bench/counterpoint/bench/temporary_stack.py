"""A stack that exists as long as a benchmark, and an HTTP client of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from counterpoint.bench.report import RetryTransport
from counterpoint.local.stack import Stack


@asynccontextmanager
async def temporary_stack(data_dir: Path) -> AsyncIterator[tuple[Stack, httpx.AsyncClient]]:
    """Start a stack, and stop it afterwards. The client has all rights and repeats what is refused for now."""
    stack = Stack(data_dir, http_port=0)
    await stack.start()
    try:
        headers = {"Authorization": f"Bearer {stack.endpoints.token}"}
        async with httpx.AsyncClient(
            base_url=stack.endpoints.http, headers=headers, timeout=600, transport=RetryTransport()
        ) as http:
            yield stack, http
    finally:
        await stack.stop()

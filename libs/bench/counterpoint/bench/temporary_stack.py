"""Stacks that exist as long as a benchmark."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx

from counterpoint.bench.report import RetryTransport
from counterpoint.local.listen_addresses import ListenAddresses
from counterpoint.local.stack import Stack
from counterpoint.local.up import down, up


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


@contextmanager
def detached_stack(folder: Path) -> Iterator[Path]:
    """Start a stack as `counterpoint up --detach` does, yield its data folder, and stop it afterwards."""
    folder.chmod(0o755)
    data_dir = folder / "data"
    up(data_dir, addresses=ListenAddresses(http_port=0), detach=True)
    try:
        yield data_dir
    finally:
        down(data_dir)

"""A stack of a test module's own, with the variables that it needs."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from counterpoint.local.stack import Stack


@asynccontextmanager
async def own_stack(*, inspect: bool = False, **variables: str) -> AsyncIterator[Stack]:
    """A running stack in a folder of its own, with these environment variables."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="counterpoint-") as folder:
        for name, value in variables.items():
            patch.setenv(name, value)
        started = Stack(Path(folder) / "data", http_port=0, inspect=inspect)
        await started.start()
        try:
            yield started
        finally:
            await started.stop()

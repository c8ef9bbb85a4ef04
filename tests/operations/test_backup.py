"""A backup of a running house restores to the same house; what is cut, changed or unfit makes nothing."""

import asyncio
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import pytest_asyncio
from deploy.external import OtherPostgres, other_postgres, postgres_of_version
from nacl.pwhash import argon2id

from counterpoint.bus.check_result import Level
from counterpoint.local.backup import sealing
from counterpoint.local.backup.archive import DATABASE, END, read_entries
from counterpoint.local.backup.create import create, create_file
from counterpoint.local.backup.dump import dump, load
from counterpoint.local.backup.opened import OpenedBackup, open_backup
from counterpoint.local.backup.restore import restore
from counterpoint.local.backup.verify import verify
from counterpoint.local.credentials import Credentials, load_credentials, read_credentials
from counterpoint.local.doctor.machine import examine_folder
from counterpoint.local.postgres import roles_sql
from counterpoint.local.private_files import private_folder
from counterpoint.local.service import NATS_USERS
from counterpoint.local.settings import local_settings
from counterpoint.local.stack import Stack
from counterpoint.local.state_file import RESTORING
from counterpoint.proto.errors import CounterpointError, ErrorCode, Permanent, Problem

COMMAND = Path(sys.executable).with_name("counterpoint")
PASSPHRASE, VERSION = "correct horse battery", "0.1.0"
COUNTS = "SELECT (SELECT count(*) FROM records), (SELECT count(*) FROM messages), (SELECT count(*) FROM audit)"


@pytest.fixture(scope="module", autouse=True)
def cheap_passphrases() -> Iterator[None]:
    """Derive keys as fast as Argon2 allows: nobody guesses here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealing, "OPERATIONS", argon2id.OPSLIMIT_MIN)
        patch.setattr(sealing, "MEMORY_BYTES", argon2id.MEMLIMIT_MIN)
        yield


@pytest_asyncio.fixture(scope="module")
async def file(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of the running stack, with a question in it."""
    headers = {"Authorization": f"Bearer {stack.endpoints.token}", "Prefer": "wait=30"}
    async with httpx.AsyncClient(base_url=stack.endpoints.http, headers=headers, timeout=60) as http:
        (await http.post("/v1/tasks", json={"kind": "question", "description": "Which?"})).raise_for_status()
    path = tmp_path_factory.mktemp("backup") / "file"
    with path.open("wb") as output:
        report = await create(stack.data_dir, output, PASSPHRASE, VERSION)
    assert report.bytes < path.stat().st_size
    return path


@pytest.fixture
def archive(file: Path) -> OpenedBackup:
    return open_backup(file, PASSPHRASE, VERSION)


@pytest.fixture
def set_postgres_url(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Set the URL of an external PostgreSQL."""

    def set_url(url: str) -> None:
        monkeypatch.setenv("COUNTERPOINT_POSTGRES_URL", url)
        local_settings.cache_clear()

    yield set_url
    local_settings.cache_clear()


def problem(path: Path, passphrase: str = PASSPHRASE, version: str = VERSION) -> str:
    with pytest.raises(Permanent) as refused:
        open_backup(path, passphrase, version)
    return f"{refused.value.code}: {refused.value}"


def test_no_secret_and_no_key_is_readable_in_the_small_entries(file: Path, stack: Stack) -> None:
    secrets = stack.data_dir.joinpath("secrets.json").read_text()
    credentials = Credentials.model_validate_json(secrets)
    with file.open("rb") as backup:
        small = b"".join(content for name, content in read_entries(backup) if not name.startswith("database/"))
    for secret in (credentials.admin_token, credentials.audit_key, credentials.postgres.owner):
        assert secret.encode() not in small
    assert b"COUNTERPOINT_WORKERS" in small


def test_a_file_that_is_cut_short_is_refused(file: Path, tmp_path: Path) -> None:
    whole = file.read_bytes()
    ends = whole.index(END.encode())
    for length in (0, 300, ends // 2, ends - 1, ends + 700):
        cut = tmp_path / "cut"
        cut.write_bytes(whole[:length])
        assert problem(cut).startswith("backup_damaged"), length


def test_a_changed_file_is_refused(file: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    with file.open("rb") as backup:
        entries = list(read_entries(backup))
    settings = [(name, content + b" " if name == "settings.json" else content) for name, content in entries]
    for other, named in (
        (settings, "settings.json"),
        ([(name, content) for name, content in entries if name != "settings.json"], "settings.json"),
        ([*entries[:-1], (END, entries[-1][1].replace(b'"code":"', b'"code":"0'))], "its hashes too"),
        ([(name, content) for name, content in entries if name != "manifest.json"], "not a backup"),
        ([(name, content.replace(b'"salt":"', b'"salt":"00')) for name, content in entries], "parameters"),
        ([*entries[:-3], *reversed(entries[-3:-1]), entries[-1]], "its order"),
        ([*entries[:-1], (entries[-2][0], b""), entries[-1]], "two entries"),
        ([*entries[:-1], ("other", b""), entries[-1]], "no backup has"),
    ):
        write(changed, other)
        assert named in problem(changed)
    changed.write_bytes(b"no archive")
    assert problem(changed).startswith("backup_damaged")


def test_a_file_that_changes_after_it_was_checked_is_not_loaded(file: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with file.open("rb") as backup:
        entries = list(read_entries(backup))
    write(copy, entries)
    opened = open_backup(copy, PASSPHRASE, VERSION)
    write(copy, [(name, content + b" " if name.startswith(DATABASE) else content) for name, content in entries])
    with pytest.raises(Permanent, match="changed"):
        next(opened.database())


def test_an_entry_that_is_not_stored_as_it_is_is_refused(tmp_path: Path) -> None:
    """A link, or a file with holes, whose size says nothing about the size of the backup."""
    path = tmp_path / "file"
    for kind, headers in ((tarfile.SYMTYPE, {}), (tarfile.REGTYPE, {"GNU.sparse.map": "0,1", "GNU.sparse.size": "1"})):
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
            entry = tarfile.TarInfo("manifest.json")
            entry.type, entry.pax_headers, entry.size = kind, headers, 0 if kind == tarfile.SYMTYPE else 1
            tar.addfile(entry, BytesIO(b"x"))
        assert "no backup has" in problem(path), kind


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="writes to /dev/full")
def test_a_full_disk_is_an_error_of_one_line(stack: Stack) -> None:
    environment = {**os.environ, "COUNTERPOINT_BACKUP_PASSPHRASE": PASSPHRASE}
    command: list[str | Path] = [COMMAND, "backup", "-", "--data-dir", stack.data_dir]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command, env=environment, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )  # fmt: skip
    assert done.returncode != 0
    assert done.stderr.startswith("counterpoint: No space left on device\n")


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def write(path: Path, entries: list[tuple[str, bytes]]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, content in entries:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, BytesIO(content))


def test_a_wrong_passphrase_and_a_later_release_are_refused(file: Path) -> None:
    assert problem(file, passphrase="wrong").startswith("passphrase")
    assert problem(file, version="0.0.9").startswith("backup_later")


@pytest.mark.slow
async def test_the_audit_log_of_a_backup_is_verified_as_that_of_the_house(
    archive: OpenedBackup, http: httpx.AsyncClient
) -> None:
    reports = {report["project"]: report for report in await verify(archive)}
    assert reports["default"]["commits"] > 0
    for project, report in reports.items():
        live = await http.get("/v1/audit/verify", params={"project": project})
        if live.status_code == 200:
            assert report["broken"] == live.json()["broken"], project


async def test_a_folder_with_content_is_refused_and_left_alone(archive: OpenedBackup, tmp_path: Path) -> None:
    (tmp_path / "something").write_text("kept")
    with pytest.raises(Permanent, match="something") as refused:
        await restore(archive, tmp_path)
    assert refused.value.code == "not_empty"
    assert names(tmp_path) == ["something"]


def test_a_folder_without_a_house_has_no_backup(tmp_path: Path) -> None:
    with pytest.raises(Permanent, match="no house"):
        create_file(tmp_path, tmp_path / "backup", PASSPHRASE, VERSION)
    (tmp_path / "there").write_text("older")
    with pytest.raises(Permanent, match="exists"):
        create_file(tmp_path, tmp_path / "there", PASSPHRASE, VERSION)
    assert names(tmp_path) == ["there"]


def test_a_file_that_cannot_be_made_is_refused_by_its_folder_or_its_own_name(tmp_path: Path) -> None:
    missing = tmp_path / "nothing"
    with pytest.raises(Permanent) as refused:
        create_file(tmp_path, missing / "file", PASSPHRASE, VERSION)
    assert [each.field for each in refused.value.problems] == [str(missing)]
    with pytest.raises(OSError, match="too long") as failed:
        create_file(tmp_path, tmp_path / ("x" * 250), PASSPHRASE, VERSION)
    assert failed.value.filename == str(tmp_path / ("x" * 250))
    assert names(tmp_path) == []


async def interrupt_restore(file: Path, folder: Path) -> None:
    """Kill a restore once it has begun to make the database."""
    process = await asyncio.create_subprocess_exec(
        COMMAND, "restore", file, "--data-dir", folder,
        env={**os.environ, "COUNTERPOINT_BACKUP_PASSPHRASE": PASSPHRASE}, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    while not (folder / "postgres" / "data").exists():
        assert process.returncode is None
        await asyncio.sleep(0)
    process.send_signal(signal.SIGKILL)
    await process.wait()


async def test_a_house_moves_to_a_server_of_its_owner_and_back_by_a_restore_that_is_killed_and_repeated(
    archive: OpenedBackup, set_postgres_url: Callable[[str], None], tmp_path: Path
) -> None:
    async with other_postgres(tmp_path / "server") as server:
        folder = private_folder(tmp_path / "data")
        own = load_credentials(folder / "secrets.json", NATS_USERS)
        server.run(roles_sql(own.postgres))
        set_postgres_url(server.server)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("counterpoint.local.backup.restore._finish", interrupted)
            with pytest.raises(KeyboardInterrupt):
                await restore(archive, folder)
        loaded = counts(server)
        await restore(archive, folder)
        assert not (folder / RESTORING).exists()
        restored = read_credentials(folder / "secrets.json")
        assert restored is not None
        assert restored.postgres == own.postgres
        assert restored.admin_token == archive.credentials.admin_token
        there = counts(server)
        assert there == loaded
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "secrets.json").write_text((folder / "secrets.json").read_text())
        with pytest.raises(Permanent, match="content of this installation"):
            await restore(archive, tmp_path / "other")
        assert counts(server) == there
        assert names(tmp_path / "other") == ["secrets.json"]
        with (tmp_path / "back").open("wb") as output:
            await create(folder, output, PASSPHRASE, VERSION)
    set_postgres_url("")
    laptop = tmp_path / "laptop"
    await interrupt_restore(tmp_path / "back", laptop)
    assert (laptop / RESTORING).exists()
    assert examine_folder(laptop, local_settings())[0].level == Level.FAILED
    with pytest.raises(Permanent) as refused:
        await Stack(laptop, http_port=0).start()
    assert refused.value.code == "restore_unfinished"
    back = open_backup(tmp_path / "back", PASSPHRASE, VERSION)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "unlink", removed_by_another())
        await restore(back, laptop)
    assert not (laptop / RESTORING).exists()
    assert read_credentials(laptop / "secrets.json") == restored
    assert (laptop / "secrets.json").stat().st_mode & 0o077 == 0
    with pytest.raises(CounterpointError, match="not_empty"):
        await restore(back, laptop)


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_house_moves_to_an_older_postgresql_and_back(
    archive: OpenedBackup, set_postgres_url: Callable[[str], None], tmp_path: Path
) -> None:
    async with postgres_of_version(tmp_path / "server", "") as server:
        assert server.run("SHOW server_version").startswith("16.")
        folder = private_folder(tmp_path / "data")
        server.run(roles_sql(load_credentials(folder / "secrets.json", NATS_USERS).postgres))
        set_postgres_url(server.server)
        await restore(archive, folder)
        async with running(folder) as (stack, http):
            tasks = (await http.get("/v1/tasks")).json()["items"]
            assert tasks
            assert (await http.get("/v1/audit/verify")).json()["ok"]
            with (tmp_path / "back").open("wb") as output:
                await create(stack.data_dir, output, PASSPHRASE, VERSION)
    set_postgres_url("")
    await restore(open_backup(tmp_path / "back", PASSPHRASE, VERSION), tmp_path / "laptop")
    async with running(tmp_path / "laptop") as (_, http):
        again = (await http.get("/v1/tasks")).json()["items"]
        assert [task["task_id"] for task in again] == [task["task_id"] for task in tasks]
        assert (await http.get("/v1/audit/verify")).json()["ok"]


async def test_a_dump_that_fails_loads_nothing(tmp_path: Path) -> None:
    """Neither an error of the server, nor a dump that ends early, nor one that cannot be read leaves anything."""
    async with other_postgres(tmp_path / "server") as server:
        server.run("CREATE DATABASE here; CREATE DATABASE there")
        here, there = (urlsplit(server.urls.admin)._replace(path=f"/{name}").geturl() for name in ("here", "there"))
        server.run("CREATE TABLE first AS SELECT generate_series(1, 200000) AS number; CREATE TABLE second ()", here)
        parts = list[bytes]()
        await dump(here, parts.append)
        whole = b"".join(parts)

        def unreadable() -> Iterator[bytes]:
            yield whole
            raise Permanent(ErrorCode.BACKUP_DAMAGED, (Problem(field="part", problem="changed"),))

        for given, said in (([whole[: len(whole) // 2]], "pg_restore"), (unreadable(), "changed"), ([], "pg_restore")):
            with pytest.raises(Permanent, match=said):
                await load(there, given)
            assert server.run("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", there) == "0"
        server.run("CREATE TABLE second ()", there)
        with pytest.raises(Permanent, match=r'psql: .*relation "second" already exists'):
            await load(there, [whole])
        assert server.run("SELECT tablename FROM pg_tables WHERE schemaname = 'public'", there) == "second"
        server.run("DROP TABLE second", there)
        await load(there, [whole])
        assert server.run("SELECT count(*) FROM first", there) == "200000"


def removed_by_another() -> Callable[..., None]:
    """Return an `unlink` that finds the first file of a folder gone, as if the server that ends had removed it."""
    unlink, first = os.unlink, iter((True,))

    def gone(path: str, *, dir_fd: int | None = None) -> None:
        if dir_fd is not None and next(first, False):
            unlink(path, dir_fd=dir_fd)
        unlink(path, dir_fd=dir_fd)

    return gone


def interrupted(*_: object) -> None:
    """Replace the end of a restore, when the database is loaded."""
    raise KeyboardInterrupt


def counts(server: OtherPostgres) -> str:
    return server.run(f"\\connect counterpoint\n{COUNTS}")


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_restored_house_answers_the_same_fires_its_timers_and_sends_nothing_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Backed up while tasks run, the first house is stopped; the second one finishes what it had begun."""
    monkeypatch.setenv("COUNTERPOINT_OUTCOME_WAIT_S", "8")
    runbook = Path(__file__).parents[2] / "examples" / "knowledge" / "runbooks" / "orders-pipeline.md"
    question = {"kind": "question", "description": "Which resolvers do the workers use?"}
    failure = {"kind": "troubleshoot", "description": "fails", "error_message": "could not resolve ldap.internal"}
    wait = {"Prefer": "wait=30"}
    async with running(tmp_path / "first") as (stack, http):
        ingested = await asyncio.create_subprocess_exec(COMMAND, "ingest", runbook, "--data-dir", stack.data_dir)
        assert await ingested.wait() == 0
        answer = (await http.post("/v1/tasks", json=question, headers=wait)).json()
        waiting = (await http.post("/v1/tasks", json=failure, headers=wait)).json()
        assert waiting["waiting_for"] == "outcome", waiting
        begun = [(await http.post("/v1/tasks", json=failure | {"description": f"fails {n}"})).json() for n in range(20)]
        with (tmp_path / "file").open("wb") as output:
            await create(stack.data_dir, output, PASSPHRASE, VERSION)
    await restore(open_backup(tmp_path / "file", PASSPHRASE, VERSION), tmp_path / "second")
    async with running(tmp_path / "second") as (_, http):
        again = (await http.post("/v1/tasks", json=question, headers=wait)).json()
        assert again["result"] == answer["result"]
        for task in (waiting, *begun):
            place = f"/v1/tasks/{task['task_id']}"
            while (await http.get(place, params={"wait": 5})).json()["state"] != "completed":
                pass
            line = (await http.get(f"{place}/line")).json()["items"]
            steps = [(action["agent"], action["kind"]) for action in line]
            assert ("manager", "complete") in steps
            assert len(set(steps)) == len(steps), steps
        assert (await http.get("/v1/audit/verify")).json()["ok"]


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[tuple[Stack, httpx.AsyncClient]]:
    """A stack for the block, and its API as the administrator."""
    stack = Stack(folder, http_port=0)
    await stack.start()
    try:
        headers = {"Authorization": f"Bearer {stack.endpoints.token}"}
        async with httpx.AsyncClient(base_url=stack.endpoints.http, headers=headers, timeout=60) as http:
            yield stack, http
    finally:
        await stack.stop()

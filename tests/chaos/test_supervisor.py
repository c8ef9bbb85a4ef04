"""The supervisor on real engines and small services of the test's own: order, faults, orphans, secrets."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import nats
import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
from chaos.processes import wait_ended, watched
from structlog.testing import capture_logs

from counterpoint.bench.processes import descendants
from counterpoint.local.credentials import load_credentials
from counterpoint.local.lock import AlreadyRunning, is_locked
from counterpoint.local.nats import policy_authorization
from counterpoint.local.postgres import PostgresUrls
from counterpoint.local.process import ManagedProcess
from counterpoint.local.serve import run_detached, run_supervisor
from counterpoint.local.service import COMMANDS, NATS_USERS, SERVICES, ServiceParameters, environment
from counterpoint.local.settings import local_settings
from counterpoint.local.stack import Progress, Stack
from counterpoint.local.state_file import ProcessIdentity, ProcessRecord, StateFile
from counterpoint.local.supervisor import restart_delay_s
from counterpoint.local.up import down, status
from counterpoint.local.valkey import run_valkey
from counterpoint.proto.errors import Permanent, Transient

SERVICE = """
import os, signal, socket
signal.signal(signal.SIGTERM, signal.SIG_IGN if STUBBORN else signal.SIG_DFL)
server = socket.create_server(("127.0.0.1", int(os.environ["COUNTERPOINT_HEALTH_PORT"])))
while True:
    asked, _ = server.accept()
    asked.recv(65536)
    asked.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
    asked.close()
"""


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", code)


def commands(stubborn: bool = False) -> dict[str, tuple[str, ...]]:
    service = python(SERVICE.replace("STUBBORN", str(stubborn)))
    return {"migrate": python(""), "provision": python("print('provisioned')")} | dict.fromkeys(SERVICES, service)


def authorization(passwords: dict[str, str]) -> str:
    users = ", ".join(f'{{ user: {user}, password: "{password}" }}' for user, password in passwords.items())
    return f"authorization {{ users: [ {users} ] }}"


def stack_of(data_dir: Path, progress: Progress = lambda stage, seconds: None, **options: object) -> Stack:
    given = {"http_port": 0, "commands": commands(), "authorization": authorization} | options
    return Stack(data_dir, progress=progress, **given)  # type: ignore[arg-type]


@asynccontextmanager
async def started(stack: Stack) -> AsyncIterator[Stack]:
    await stack.start()
    try:
        yield stack
    finally:
        await stack.stop()


def environ_of(pid: int | None) -> str:
    return Path(f"/proc/{pid}/environ").read_text()


def arguments_of(pid: int | None) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def second_start(data_dir: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, __file__, str(data_dir)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "600"], start_new_session=True)


@contextmanager
def supervisor_program(data_dir: Path) -> Iterator[subprocess.Popen[str]]:
    """This file as a supervisor of its own, ready when the block begins."""
    reading, writing = os.pipe()
    argv = [sys.executable, __file__, str(data_dir), "--report-fd", str(writing)]
    with subprocess.Popen(argv, pass_fds=(writing,), stderr=subprocess.PIPE, text=True) as supervisor:
        os.close(writing)
        try:
            with open(reading, encoding="utf-8") as reports:
                stages = [json.loads(line) for line in reports]
            assert stages[-1].get("stage") == "ready", stages
            yield supervisor
        finally:
            supervisor.kill()


async def test_everything_starts_in_order_and_the_endpoints_are_as_the_contract_says(tmp_path: Path) -> None:
    stages: list[str] = []
    async with started(stack_of(tmp_path, lambda stage, seconds: stages.append(stage), inspect=True)):
        assert stages[0] == "sweep"
        assert set(stages[1:6]) == {"nats", "postgres", "valkey", "migrate", "provision"}
        assert stages.index("nats") < stages.index("provision")
        assert stages.index("postgres") < stages.index("migrate")
        assert set(stages[6:11]) == set(SERVICES)
        assert stages[11:] == ["ready"]

        file = tmp_path / "endpoints.json"
        assert file.stat().st_mode & 0o777 == 0o600
        told = json.loads(file.read_text())
        assert set(told) == {"http", "token", "nats", "users", "lineage", "services", "engines"}
        assert told["http"].startswith("http://127.0.0.1:")
        assert told["nats"].startswith("nats://127.0.0.1:")
        assert set(told["users"]) == {"publisher", "observer"}
        assert told["users"]["observer"]["user"] == "observer"
        assert told["users"]["observer"]["inbox_prefix"] == "_INBOX_observer"
        assert set(told["users"]["observer"]) == {"user", "password", "inbox_prefix"}
        assert set(told["services"]) == set(SERVICES)
        assert all(set(service) == {"pid", "health"} for service in told["services"].values())
        assert told["engines"]["postgres"]["dsn"].startswith("postgresql://counterpoint_inspect:")
        assert set(told["engines"]["nats"]) == set(told["engines"]["valkey"]) == {"pid"}
        assert (tmp_path / "secrets.json").stat().st_mode & 0o777 == 0o600
        assert tmp_path.joinpath("state.json").stat().st_mode & 0o777 == 0o600
    assert not file.exists()


async def test_without_inspect_no_database_login_is_told(tmp_path: Path) -> None:
    async with started(stack_of(tmp_path)) as stack:
        assert stack.endpoints.engines["postgres"].dsn is None


async def test_a_process_has_no_secret_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "the-person's-own")
    async with started(stack_of(tmp_path)) as stack:
        kept = load_credentials(tmp_path / "secrets.json", NATS_USERS)
        secrets = {
            **{f"nats {user}": password for user, password in kept.nats.items()},
            **{f"postgres {role}": password for role, password in kept.postgres.model_dump().items()},
            **{f"key {key.id}": key.private for key in kept.signing_keys},
            "valkey": kept.valkey,
            "token": kept.admin_token,
        }
        assert len(set(secrets.values())) == len(NATS_USERS) + 5 + 2 + 2
        own = {name: {f"nats {name}"} for name in SERVICES}
        own["memory"] |= {"postgres memory", "valkey", "token", "key 1", "key 2"}
        for name, service in stack.endpoints.services.items():
            environ = environ_of(service.pid)
            assert {label for label, secret in secrets.items() if secret in environ} == own[name], name
            assert "the-person's-own" not in environ
            assert not [label for label, secret in secrets.items() if secret in arguments_of(service.pid)]
        for engine in stack.endpoints.engines.values():
            shown = environ_of(engine.pid) + arguments_of(engine.pid)
            assert not [label for label, secret in secrets.items() if secret in shown]


def test_the_jobs_get_their_own_login_alone(tmp_path: Path) -> None:
    kept = load_credentials(tmp_path / "secrets.json", NATS_USERS)
    wiring = ServiceParameters(
        data_dir=tmp_path,
        nats_url="nats://127.0.0.1:1",
        postgres=PostgresUrls.of("postgresql://postgres:p@127.0.0.1:2/postgres", kept.postgres),
        valkey_url="redis://127.0.0.1:3",
        http_port=4,
        lineage_port=5,
        gateway_port=8486,
        credentials=kept,
        inherited={"PATH": "/bin", "AWS_SECRET": "x"},
    )
    basics = {"PATH", "HOME", "LANG", "MALLOC_ARENA_MAX"}
    owner = {"COUNTERPOINT_POSTGRES_OWNER_URL", "COUNTERPOINT_INSTALLATION"}
    assert set(environment("migrate", wiring)) == basics | owner
    provision = environment("provision", wiring)
    assert set(provision) == basics | {f"COUNTERPOINT_NATS_{name}" for name in ("URL", "USER", "PASSWORD")}
    assert provision["COUNTERPOINT_NATS_PASSWORD"] == kept.nats["provisioner"]


def test_keys_of_providers_are_the_managers_alone_and_only_where_it_has_a_use_for_them(tmp_path: Path) -> None:
    def given(**inherited: str) -> dict[str, dict[str, str]]:
        wiring = ServiceParameters(
            data_dir=tmp_path,
            nats_url="nats://127.0.0.1:1",
            postgres=PostgresUrls.of("postgresql://postgres:p@127.0.0.1:2/postgres", kept.postgres),
            valkey_url="redis://127.0.0.1:3",
            http_port=4,
            lineage_port=5,
            gateway_port=6,
            credentials=kept,
            inherited=inherited,
        )
        return {name: environment(name, wiring) for name in SERVICES}

    kept = load_credentials(tmp_path / "secrets.json", NATS_USERS)
    keys = {"OPENAI_API_KEY": "x", "OPENAI_API_BASE": "x", "AWS_REGION_NAME": "x", "HTTPS_PROXY": "x"}
    assert not [name for name, env in given(**keys, DISPLAY=":0").items() if {*keys, "DISPLAY"} & {*env}]
    env = given(**keys, COUNTERPOINT_MODEL="m", COUNTERPOINT_SEARCH_URL="s", COUNTERPOINT_API_KEY="x")
    assert [name for name in SERVICES if keys.keys() <= env[name].keys()] == ["manager"]
    assert [name for name in SERVICES if {*keys} & {*env[name]}] == ["manager"]
    assert [name for name in SERVICES if "COUNTERPOINT_MODEL" in env[name]] == ["memory", "manager", "developer"]
    assert not [name for name in SERVICES if "COUNTERPOINT_API_KEY" in env[name]]
    assert env["developer"]["COUNTERPOINT_GATEWAY_URL"] == "http://127.0.0.1:6"
    assert env["manager"]["COUNTERPOINT_GATEWAY_PORT"] == "6"


async def test_every_killed_process_is_restarted_and_the_endpoints_are_updated(tmp_path: Path) -> None:
    async with started(stack_of(tmp_path)) as stack:
        before = stack.endpoints
        names = (*before.engines, *before.services)
        assert len(names) == 8
        with capture_logs() as events:
            for name in names:
                stack.kill(name)
            await asyncio.gather(*(stack.ready(name) for name in names))
        ended = {event["name"]: event for event in events if event["event"] == "child.ended"}
        assert set(ended) == set(names)
        assert {event["code"] for event in ended.values()} == {-signal.SIGKILL}
        after = json.loads((tmp_path / "endpoints.json").read_text())
        for name in names:
            pid = (after["engines"] | after["services"])[name]["pid"]
            assert pid != (before.engines | before.services)[name].pid
            assert ProcessIdentity.of(pid) is not None
        assert (after["nats"], after["http"]) == (before.nats, before.http)


async def test_a_bus_that_lost_its_store_is_provisioned_again(tmp_path: Path) -> None:
    async with started(stack_of(tmp_path)) as stack:
        log = tmp_path / "logs" / "provision.log"
        assert log.read_text().count("provisioned") == 1
        await stack.wipe("nats")
        assert log.read_text().count("provisioned") == 2


async def test_a_bus_that_ends_again_while_it_is_provisioned_does_not_wait_for_that(tmp_path: Path) -> None:
    stuck = tmp_path / "stuck"
    waiting = f"while os.path.exists({str(stuck)!r}): time.sleep(0.01)"
    job = f"import os, time\nprint('begun', flush=True)\n{waiting}\nprint('done')"
    log = tmp_path / "data" / "logs" / "provision.log"

    async def said(word: str, times: int) -> None:
        async with asyncio.timeout(120):
            while log.read_text().count(word) < times:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async with started(stack_of(tmp_path / "data", commands=commands() | {"provision": python(job)})) as stack:
        stuck.touch()
        stack.kill("nats")
        await said("begun", 2)
        stack.kill("nats")
        await said("begun", 3)
        stuck.unlink()
        await said("done", 2)


def test_patience_grows_and_is_bounded() -> None:
    delays = [restart_delay_s(deaths) for deaths in range(2000)]
    assert delays[0] <= 0.1
    assert delays == sorted(delays)
    assert delays[-1] == max(delays) == 10.0


async def test_a_failed_job_says_why_and_leaves_nothing_running(tmp_path: Path) -> None:
    failing = commands() | {"migrate": python("raise SystemExit('no such table: tasks')")}
    before = descendants(os.getpid())
    with pytest.raises(Transient, match="migrate failed with code 1\nno such table: tasks"):
        await stack_of(tmp_path, commands=failing).start()
    assert descendants(os.getpid()) <= before
    assert not is_locked(tmp_path)
    async with started(stack_of(tmp_path)):
        assert is_locked(tmp_path)


async def test_a_service_that_does_not_drain_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ManagedProcess, "drain_s", 0.2)
    stack = stack_of(tmp_path, commands=commands(stubborn=True))
    await stack.start()
    with watched({service.pid for service in stack.endpoints.services.values()}) as descriptors:
        await stack.stop()
        assert wait_ended(descriptors, 0) == set()


async def test_a_taken_http_port_is_refused_before_anything_starts(tmp_path: Path) -> None:
    async with run_valkey(tmp_path / "other") as other:
        with pytest.raises(Permanent, match="port_taken"):
            await stack_of(tmp_path / "data", http_port=other.port).start()
    assert not (tmp_path / "data" / "nats").exists()


async def test_up_says_which_setting_a_service_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_RETRY_GRACE_S", "soon")
    stack = Stack(tmp_path / "data", http_port=0)
    with pytest.raises(Permanent, match=r"settings of lineage: COUNTERPOINT_RETRY_GRACE_S: .* correct the variable"):
        await stack.start()
    assert not is_locked(tmp_path / "data")


async def _quiet(error: Exception) -> None:
    """A refusal shows in what does not happen."""


async def test_publishers_have_logins_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_PUBLISHERS", '{"airflow": ["orders"]}')
    local_settings.cache_clear()
    try:
        given = {"commands": commands() | {"provision": COMMANDS["provision"]}, "authorization": policy_authorization}
        async with started(stack_of(tmp_path, **given)) as stack:
            assert set(stack.endpoints.users) == {"publisher", "observer", "airflow"}
            airflow = stack.endpoints.users["airflow"]
            login = {"user": airflow.user, "password": airflow.password}
            inbox = airflow.inbox_prefix.encode()
            async with await nats.connect(stack.endpoints.nats, inbox_prefix=inbox, error_cb=_quiet, **login) as client:
                assert (await client.jetstream().publish("intake.orders.task", b"{}")).stream == "INTAKE"
                with pytest.raises(nats.errors.TimeoutError):
                    await client.jetstream().publish("intake.finance.task", b"{}", timeout=0.5)
    finally:
        local_settings.cache_clear()


async def test_an_engine_that_runs_elsewhere_is_used_and_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_valkey(tmp_path / "elsewhere") as elsewhere:
        monkeypatch.setenv("COUNTERPOINT_VALKEY_URL", elsewhere.url)
        local_settings.cache_clear()
        try:
            async with started(stack_of(tmp_path / "data")) as stack:
                assert set(stack.endpoints.engines) == {"nats", "postgres"}
                memory = stack.endpoints.services["memory"]
                assert f"COUNTERPOINT_VALKEY_URL={elsewhere.url}" in environ_of(memory.pid)
        finally:
            local_settings.cache_clear()


async def test_a_folder_has_one_supervisor(tmp_path: Path) -> None:
    async with started(stack_of(tmp_path)) as stack:
        with pytest.raises(AlreadyRunning):
            await stack_of(tmp_path).start()
        second = second_start(tmp_path)
        assert second.returncode == 1
        assert f"process {os.getpid()} already runs on {tmp_path}" in second.stderr
        assert ProcessIdentity.of(stack.endpoints.services["router"].pid) is not None


async def test_orphans_are_swept_and_strangers_are_not(tmp_path: Path) -> None:
    orphan = sleeper()
    stranger = sleeper()
    try:
        state = StateFile(tmp_path / "state.json")
        birth = ProcessIdentity.of(orphan.pid)
        assert birth is not None
        state.record("router", ProcessRecord(birth=birth, death_signal=signal.SIGKILL))
        earlier = ProcessIdentity(pid=stranger.pid, started="another boot/1")
        state.record("manager", ProcessRecord(birth=earlier, death_signal=signal.SIGKILL))
        async with started(stack_of(tmp_path)):
            assert orphan.wait(timeout=10) == -signal.SIGKILL
            assert stranger.poll() is None
    finally:
        for process in (orphan, stranger):
            process.kill()
            process.wait()


def test_a_killed_supervisor_leaves_no_orphan_and_no_obstacle(tmp_path: Path) -> None:
    with supervisor_program(tmp_path) as supervisor:
        below = descendants(supervisor.pid)
        assert len(below) > 8, "the five services, three engines and PostgreSQL's own children"
        with watched(below) as descriptors:
            supervisor.kill()
            left = wait_ended(descriptors, 20)
            for pid in left:
                signal.pidfd_send_signal(descriptors[pid], signal.SIGKILL)
            assert left == set()
    assert (tmp_path / "endpoints.json").exists()
    assert not status(tmp_path).running
    with supervisor_program(tmp_path):
        assert all(status(tmp_path).services.values())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_everything_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with supervisor_program(tmp_path) as supervisor:
        with watched(descendants(supervisor.pid)) as descriptors:
            supervisor.send_signal(number)
            assert supervisor.wait(timeout=30) == 0
            assert wait_ended(descriptors, 0) == set()
        assert not (tmp_path / "endpoints.json").exists()
        assert not (tmp_path / "postgres" / "data" / "postmaster.pid").exists()
        assert StateFile(tmp_path / "state.json").children == {}


def test_a_detached_stack_is_ready_when_the_call_returns_and_stops_when_asked(tmp_path: Path) -> None:
    stages: list[str] = []
    run_detached([sys.executable, __file__, str(tmp_path)], tmp_path, lambda stage, seconds: stages.append(stage))
    try:
        assert stages[-1] == "ready"
        seen = status(tmp_path)
        assert seen.running
        assert set(seen.services) == set(SERVICES)
        assert set(seen.engines) == {"nats", "postgres", "valkey"}
        assert all((seen.services | seen.engines).values())
        with pytest.raises(AlreadyRunning):
            run_detached([sys.executable, __file__, str(tmp_path)], tmp_path, lambda stage, seconds: None)
    finally:
        assert down(tmp_path)
    assert not status(tmp_path).running
    assert not down(tmp_path)


def _main() -> None:
    parser = ArgumentParser()
    parser.add_argument("data_dir", type=Path)
    parser.add_argument("--report-fd", type=int)
    given = parser.parse_args()
    run_supervisor(lambda progress: stack_of(given.data_dir, progress), given.report_fd)


if __name__ == "__main__":
    _main()

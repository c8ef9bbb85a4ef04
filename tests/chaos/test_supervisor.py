"""The supervisor on real engines and small services of the test's own: order, restarts and failures of a start."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest
from chaos.processes import wait_ended, watched
from chaos.small_stack import commands, environ_of, python, stack_of, started
from structlog.testing import capture_logs

from counterpoint.bench.processes import descendants
from counterpoint.local.lock import is_locked
from counterpoint.local.process import ManagedProcess
from counterpoint.local.service import SERVICES
from counterpoint.local.settings import local_settings
from counterpoint.local.stack import Stack
from counterpoint.local.state_file import ProcessIdentity
from counterpoint.local.supervisor import restart_delay_s
from counterpoint.local.valkey import run_valkey
from counterpoint.proto.errors import Permanent, Transient


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

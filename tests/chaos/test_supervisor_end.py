"""Every process ends with its supervisor, however that ends, and none of another does."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from chaos.processes import wait_ended, watched
from chaos.small_stack import PROGRAM, stack_of, started

from counterpoint.bench.processes import descendants
from counterpoint.local.lock import AlreadyRunning
from counterpoint.local.serve import run_detached
from counterpoint.local.service import SERVICES
from counterpoint.local.state_file import ProcessIdentity, ProcessRecord, StateFile
from counterpoint.local.up import down, status


def second_start(data_dir: Path) -> subprocess.CompletedProcess[str]:
    argv = [*PROGRAM, str(data_dir)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "600"], start_new_session=True)


@contextmanager
def supervisor_program(data_dir: Path) -> Iterator[subprocess.Popen[str]]:
    """A supervisor in a process of its own, ready when the block begins."""
    reading, writing = os.pipe()
    argv = [*PROGRAM, str(data_dir), "--report-fd", str(writing)]
    with subprocess.Popen(argv, pass_fds=(writing,), stderr=subprocess.PIPE, text=True) as supervisor:
        os.close(writing)
        try:
            with open(reading, encoding="utf-8") as reports:
                stages = [json.loads(line) for line in reports]
            assert stages[-1].get("stage") == "ready", stages
            yield supervisor
        finally:
            supervisor.kill()


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
    run_detached([*PROGRAM, str(tmp_path)], tmp_path, lambda stage, seconds: stages.append(stage))
    try:
        assert stages[-1] == "ready"
        seen = status(tmp_path)
        assert seen.running
        assert set(seen.services) == set(SERVICES)
        assert set(seen.engines) == {"nats", "postgres", "valkey"}
        assert all((seen.services | seen.engines).values())
        with pytest.raises(AlreadyRunning):
            run_detached([*PROGRAM, str(tmp_path)], tmp_path, lambda stage, seconds: None)
    finally:
        assert down(tmp_path)
    assert not status(tmp_path).running
    assert not down(tmp_path)

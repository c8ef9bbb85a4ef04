"""Processes forked from a template, and what becomes of them when it, or the supervisor, is killed."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
from chaos.processes import wait_ended, watched
from flows.providers import holds
from structlog.testing import capture_logs

from counterpoint.local.forking import ForkedProcess, Template
from counterpoint.local.process import ChildProcess, Program, spawn

MODULE = "chaos.forked_stub"
TESTS = str(Path(__file__).parents[1])
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks are adopted on Linux only")


def common() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": TESTS}


@pytest.fixture
async def template(tmp_path: Path) -> AsyncIterator[Template]:
    template = await Template.start(common(), tmp_path / "template.log")
    yield template
    await template.close()


def program(template: Template, log: Path, fds: tuple[int, ...] = (), **env: str) -> Program:
    argv = (sys.executable, "-m", MODULE)
    return Program(argv=argv, env={"PYTHONPATH": TESTS, **env}, log=log, fds=fds, forker=template)


def text_of(path: str | Path) -> str:
    return Path(path).read_text()


async def written(log: Path, process: ChildProcess) -> Any:
    while not text_of(log).endswith("}\n"):
        assert process.returncode is None, text_of(log)
        await asyncio.sleep(0.01)
    return json.loads(text_of(log))


async def test_a_fork_has_its_own_environment_files_and_session(template: Template, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    process, _ = await spawn(program(template, tmp_path / "log", (reading,), NAME="value"))
    assert isinstance(process, ForkedProcess)
    told = await written(tmp_path / "log", process)
    assert told["environment"] == {"PYTHONPATH": TESTS, "NAME": "value"}
    kept = {int(number): inode for number, inode in told["files"].items()}
    assert set(kept) == {0, 1, 2, reading}
    assert kept[reading] == os.fstat(reading).st_ino
    assert kept[1] == kept[2] == (tmp_path / "log").stat().st_ino
    assert (told["session"], told["parent"]) == (process.pid, os.getpid())
    assert (told["arguments"], told["folder"]) == ([], "/")
    assert MODULE in text_of(f"/proc/{process.pid}/cmdline")
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == -signal.SIGTERM
    process.send_signal(signal.SIGTERM)
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("code", [0, 3])
async def test_the_exit_code_of_a_fork_is_known(template: Template, tmp_path: Path, code: int) -> None:
    process, _ = await spawn(program(template, tmp_path / "log", CODE=str(code)))
    assert await process.wait() == code


async def test_no_fork_has_the_secrets_of_another(template: Template, tmp_path: Path) -> None:
    secrets = {name: f"{name}-{os.urandom(12).hex()}" for name in ("first", "second")}
    forks = {}
    for name, secret in secrets.items():
        forks[name], _ = await spawn(program(template, tmp_path / name, SECRET=secret))
        await written(tmp_path / name, forks[name])
    for name, fork in forks.items():
        assert [each for each, secret in secrets.items() if holds(fork.pid, secret)] == [name]
        fork.send_signal(signal.SIGKILL)
        await fork.wait()


async def test_without_its_template_a_module_is_started_without_a_fork(template: Template, tmp_path: Path) -> None:
    os.kill(template.pid, signal.SIGKILL)
    for name in ("first", "second"):
        with capture_logs() as logs:
            process, _ = await spawn(program(template, tmp_path / name, CODE="0"))
        assert not isinstance(process, ForkedProcess)
        assert await process.wait() == 0
        assert [line["event"] for line in logs] == ["fork.failed"]


async def test_a_cancelled_fork_does_not_start(template: Template, tmp_path: Path) -> None:
    os.kill(template.pid, signal.SIGSTOP)
    forking = asyncio.create_task(spawn(program(template, tmp_path / "log")))
    await asyncio.sleep(0)
    forking.cancel()
    await asyncio.wait({forking})
    assert forking.cancelled()
    os.kill(template.pid, signal.SIGCONT)
    await template.close()
    assert text_of(tmp_path / "log") == ""


def test_forks_survive_their_template_and_die_with_the_supervisor(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, __file__, str(tmp_path)], stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        fork = int(supervisor.stdout.readline())
        with watched({fork}) as living:
            assert wait_ended(living, 0) == {fork}
            supervisor.kill()
            assert wait_ended(living, 60) == set()


async def supervise(folder: Path) -> None:
    """Fork one process, close the template, print the pid, and wait."""
    template = await Template.start(common(), folder / "template.log")
    process, _ = await spawn(program(template, folder / "log"))
    await written(folder / "log", process)
    await template.close()
    print(process.pid, flush=True)
    await process.wait()


if __name__ == "__main__":
    asyncio.run(supervise(Path(sys.argv[1])))

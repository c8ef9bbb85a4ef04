"""`counterpoint up`, `down` and `status`; as a program, a supervisor in the foreground."""

import argparse
import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from counterpoint.local.endpoints import Endpoints, read_endpoints
from counterpoint.local.lock import is_held
from counterpoint.local.probe import http_ok
from counterpoint.local.serve import OnReady, run_detached, run_supervisor, serve
from counterpoint.local.stack import HTTP_PORT, Progress, Stack
from counterpoint.local.state import Birth, read_state
from counterpoint.proto.errors import Transient


class Status(BaseModel):
    """What runs on a data folder: is each service ready, does each engine's process live?"""

    model_config = ConfigDict(frozen=True)

    running: bool
    pid: int | None = None
    services: dict[str, bool] = {}
    engines: dict[str, bool] = {}


def up(
    data_dir: Path,
    *,
    http_port: int = HTTP_PORT,
    inspect: bool = False,
    detach: bool = False,
    progress: Progress = lambda stage, seconds: None,
    on_ready: OnReady | None = None,
) -> None:
    """Start a stack and run it until SIGINT, SIGTERM or SIGHUP; with `detach` return as soon as it is ready.

    Raises AlreadyRunning, and what `Stack.start` raises.
    """
    if detach:
        argv = [sys.executable, "-m", "counterpoint.local.up", str(data_dir), "--http-port", str(http_port)]
        run_detached(argv + ["--inspect"] * inspect, data_dir, progress)
    else:
        serve(Stack(data_dir, http_port, inspect, progress), on_ready)


def down(data_dir: Path, timeout_s: float = 60.0) -> bool:
    """Stop the stack of `data_dir` and wait for its end. False when none ran; raises Transient when it takes longer."""
    deadline = time.monotonic() + timeout_s
    asked: Birth | None = None
    while is_held(data_dir):
        supervisor = read_state(data_dir / "state.json").supervisor
        if supervisor is not None and supervisor != asked and supervisor.lives():
            os.kill(supervisor.pid, signal.SIGTERM)
            asked = supervisor
        if time.monotonic() > deadline:
            raise Transient(f"the stack on {data_dir} did not stop within {timeout_s:g} s")
        time.sleep(0.05)
    return asked is not None


def status(data_dir: Path) -> Status:
    """What runs on `data_dir`. While it starts, nothing is listed yet."""
    if not is_held(data_dir):
        return Status(running=False)
    supervisor = read_state(data_dir / "state.json").supervisor
    pid = supervisor.pid if supervisor is not None else None
    try:
        endpoints = read_endpoints(data_dir)
    except Transient:
        return Status(running=True, pid=pid)
    engines = {name: engine.pid for name, engine in endpoints.engines.items() if engine.pid is not None}
    return Status(
        running=True,
        pid=pid,
        services=asyncio.run(_readiness(endpoints)),
        engines={name: Birth.of(number) is not None for name, number in engines.items()},
    )


async def _readiness(endpoints: Endpoints) -> dict[str, bool]:
    ports = [int(service.health.rpartition(":")[2]) for service in endpoints.services.values()]
    answers = await asyncio.gather(*(http_ok(port, "/readyz") for port in ports))
    return dict(zip(endpoints.services, answers, strict=True))


def main() -> None:
    """Run a supervisor in the foreground: `python -m counterpoint.local.up DATA_DIR`."""
    parser = argparse.ArgumentParser(prog="python -m counterpoint.local.up")
    parser.add_argument("data_dir", type=Path)
    parser.add_argument("--http-port", type=int, default=HTTP_PORT)
    parser.add_argument("--inspect", action="store_true")
    parser.add_argument("--report-fd", type=int)
    given = parser.parse_args()
    run_supervisor(
        lambda progress: Stack(given.data_dir, given.http_port, given.inspect, progress), report_fd=given.report_fd
    )


if __name__ == "__main__":
    main()

"""`counterpoint up`, `down` and `status`; as a program, a supervisor in the foreground."""

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

from pydantic import BaseModel, ConfigDict

from counterpoint.local.endpoints import Endpoints, read_endpoints
from counterpoint.local.listen_addresses import ListenAddresses
from counterpoint.local.lock import is_locked
from counterpoint.local.serve import OnReady, run_detached, run_supervisor, serve
from counterpoint.local.stack import Progress, Stack
from counterpoint.local.state_file import ProcessIdentity, read_state
from counterpoint.proto.errors import Transient

_DIRECT = build_opener(ProxyHandler({}))
_TIMEOUT_S = 2.0
LOCAL = ListenAddresses()


class Status(BaseModel):
    """The state of a stack: readiness of each service, liveness of each engine.

    `waiting_for` names the missing dependencies of services that report them.
    """

    model_config = ConfigDict(frozen=True)

    running: bool
    pid: int | None = None
    services: dict[str, bool] = {}
    engines: dict[str, bool] = {}
    waiting_for: dict[str, tuple[str, ...]] = {}


def up(
    data_dir: Path,
    *,
    addresses: ListenAddresses = LOCAL,
    inspect: bool = False,
    detach: bool = False,
    progress: Progress = lambda stage, seconds: None,
    on_ready: OnReady | None = None,
) -> None:
    """Start a stack and run it until SIGINT, SIGTERM or SIGHUP; with `detach` return as soon as it is ready.

    Raises `AlreadyRunning`, and what `Stack.start` raises.
    """
    if detach:
        argv = [sys.executable, "-m", "counterpoint.local.up", str(data_dir)]
        options = [f"--{name.replace('_', '-')}={value}" for name, value in asdict(addresses).items()]
        run_detached([*argv, *options, *["--inspect"] * inspect], data_dir, progress)
    else:
        serve(Stack(data_dir, inspect=inspect, progress=progress, addresses=addresses), on_ready)


def down(data_dir: Path, timeout_s: float = 60.0) -> bool:
    """Stop the stack of `data_dir` and wait. Return False when none ran. Raises `Transient` on a timeout."""
    deadline = time.monotonic() + timeout_s
    stopped_supervisor: ProcessIdentity | None = None
    while is_locked(data_dir):
        supervisor = read_state(data_dir / "state.json").supervisor
        if supervisor is not None and supervisor != stopped_supervisor and supervisor.is_alive():
            os.kill(supervisor.pid, signal.SIGTERM)
            stopped_supervisor = supervisor
        if time.monotonic() > deadline:
            raise Transient(f"the stack on {data_dir} did not stop within {timeout_s:g} s")
        time.sleep(0.05)
    return stopped_supervisor is not None


def status(data_dir: Path) -> Status:
    """Return the state of the stack on `data_dir`; empty while it starts."""
    if not is_locked(data_dir):
        return Status(running=False)
    supervisor = read_state(data_dir / "state.json").supervisor
    pid = supervisor.pid if supervisor is not None else None
    try:
        endpoints = read_endpoints(data_dir)
    except Transient:
        return Status(running=True, pid=pid)
    engines = {name: engine.pid for name, engine in endpoints.engines.items() if engine.pid is not None}
    waiting = asyncio.run(_waiting(endpoints))
    return Status(
        running=True,
        pid=pid,
        services={name: missing == () for name, missing in waiting.items()},
        engines={name: ProcessIdentity.of(number) is not None for name, number in engines.items()},
        waiting_for={name: missing for name, missing in waiting.items() if missing},
    )


def settings(data_dir: Path) -> dict[str, dict[str, Any]]:
    """Return the effective settings of each responding service by environment variable, with secrets masked."""
    in_force = {}
    for name, service in read_endpoints(data_dir).services.items():
        with suppress(OSError), _DIRECT.open(f"{service.health}/settings", timeout=_TIMEOUT_S) as answer:
            in_force[name] = json.load(answer)
    return in_force


async def _waiting(endpoints: Endpoints) -> dict[str, tuple[str, ...] | None]:
    """Return the missing dependencies of each service, empty when ready; None for one that does not respond."""
    checks = (asyncio.to_thread(_missing, f"{service.health}/readyz") for service in endpoints.services.values())
    return dict(zip(endpoints.services, await asyncio.gather(*checks), strict=True))


def _missing(url: str) -> tuple[str, ...] | None:
    try:
        with _DIRECT.open(url, timeout=_TIMEOUT_S):
            return ()
    except HTTPError as refused:
        with refused, suppress(ValueError, KeyError):
            return tuple(json.load(refused)["waiting_for"])
    except OSError:
        pass
    return None


def main() -> None:
    """Run a supervisor in the foreground: `python -m counterpoint.local.up DATA_DIR`."""
    parser = argparse.ArgumentParser(prog="python -m counterpoint.local.up")
    parser.add_argument("data_dir", type=Path)
    for field in fields(ListenAddresses):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default)
    parser.add_argument("--inspect", action="store_true")
    parser.add_argument("--report-fd", type=int)
    given = parser.parse_args()
    addresses = ListenAddresses(**{field.name: getattr(given, field.name) for field in fields(ListenAddresses)})
    run_supervisor(
        lambda progress: Stack(given.data_dir, inspect=given.inspect, progress=progress, addresses=addresses),
        report_fd=given.report_fd,
    )


if __name__ == "__main__":
    main()

"""Processes that run the deliveries of a service again. They are given no address, no token and no model: what another
model writes in a replay, they ask for."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from counterpoint.cli.errors import CommandError
from counterpoint.client.replay import LiveReply, LiveRequest, RecordedDelivery, ReplayedDelivery, ReplayLine

MODULES: Mapping[str, str] = {
    "developer": "counterpoint.developer.replay",
    "manager": "counterpoint.manager.replay",
}
"""Services whose deliveries run again, and the module of each that does it."""
_KEPT = ("PATH", "HOME", "LANG", "PYTHONPATH", "SYSTEMROOT", "TMPDIR")


class ReplayProcesses:
    """A process for each service, started when it is needed. `policy` is a file for all of them."""

    def __init__(self, policy: Path | None = None) -> None:
        self._arguments = [str(policy.absolute())] if policy else []
        self._running: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> "ReplayProcesses":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in self._running.values():
            process.communicate()

    def run(
        self, delivery: RecordedDelivery, live: Callable[[LiveRequest], LiveReply] | None = None
    ) -> ReplayedDelivery:
        """Run a delivery again; `live` answers what it asks for. Raises `CommandError` if the service cannot."""
        process = self._running.get(delivery.service) or self._start(delivery.service)
        line = self._exchange(process, delivery)
        while line.asks is not None and live is not None:
            line = self._exchange(process, live(line.asks))
        if line.result is None:
            raise CommandError(f"the decisions of {delivery.service} cannot run again: its process has ended")
        if line.result.invalid is not None:
            raise CommandError(f"the policy cannot be used: {line.result.invalid}")
        return line.result

    def _exchange(self, process: "subprocess.Popen[str]", sent: RecordedDelivery | LiveReply) -> ReplayLine:
        """Write a line and return the next that the process writes, an empty one if it has ended."""
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(sent.model_dump_json() + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        return ReplayLine.model_validate_json(line) if line else ReplayLine()

    def _start(self, service: str) -> "subprocess.Popen[str]":
        module = MODULES[service]
        if importlib.util.find_spec(module.rpartition(".")[0]) is None:
            raise CommandError(f"the {service} is not installed: pip install 'counterpoint[server]'")
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        self._running[service] = process = subprocess.Popen(
            [sys.executable, "-m", module, *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        return process

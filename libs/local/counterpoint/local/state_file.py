"""The state file of a data folder: chosen ports, and processes to stop after a crash of the supervisor."""

import random
import signal
import socket
import subprocess
from pathlib import Path

import structlog
from pydantic import BaseModel, ConfigDict, ValidationError

from counterpoint.local.listen_addresses import LOCALHOST
from counterpoint.local.private_files import NO_SPACE, write_private

log = structlog.get_logger(__name__)

FIRST_PORT, EPHEMERAL_PORT = 20_000, 32_768
"""The range of ports that are chosen; the kernel's configuration may make it end earlier."""
RESTORING = "restoring.json"
"""The file in a data folder whose restore has not finished."""


class ProcessIdentity(BaseModel):
    """A process by pid and start time, since pids are reused."""

    model_config = ConfigDict(frozen=True)

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> "ProcessIdentity | None":
        """Return the identity of the live process `pid`, or None. A zombie is not live."""
        try:
            after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            if Path("/proc/self/stat").exists():
                return None
            shown = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
            started = shown.stdout.strip()
            return cls(pid=pid, started=started) if started else None
        if after_name[0] in "ZX":
            return None
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return cls(pid=pid, started=f"{boot}/{after_name[19]}")

    def is_alive(self) -> bool:
        """Whether this very process is live."""
        return ProcessIdentity.of(self.pid) == self


class ProcessRecord(BaseModel):
    """A recorded process, and the signal that stops it at once without harm to its data."""

    model_config = ConfigDict(frozen=True)

    birth: ProcessIdentity
    death_signal: signal.Signals


class StateContent(BaseModel):
    """The content of a state file. `rolls`: the supervisor takes requests for rolls."""

    rolls: bool = False
    ports: dict[str, int] = {}
    supervisor: ProcessIdentity | None = None
    children: dict[str, ProcessRecord] = {}


class StateFile:
    """The state file of one folder, with a single writer."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept = read_state(path)

    @property
    def children(self) -> dict[str, ProcessRecord]:
        """The recorded processes by name."""
        return dict(self._kept.children)

    def port(self, name: str) -> int:
        """Return the stored port of `name`, or if it is missing or taken, a new one."""
        kept = self._kept.ports.get(name)
        if kept is not None and is_free(kept):
            return kept
        others = {port for other, port in self._kept.ports.items() if other != name}
        chosen = _free_port()
        while chosen in others:
            chosen = _free_port()
        self._kept.ports[name] = chosen
        self._write()
        return chosen

    def supervised_by(self, supervisor: ProcessIdentity | None) -> None:
        """Record the supervisor of this folder."""
        self._kept.supervisor = supervisor
        self._kept.rolls = supervisor is not None
        self._write()

    def record(self, name: str, process_record: ProcessRecord) -> None:
        """Record a started process."""
        self._kept.children[name] = process_record
        self._write()

    def forget(self, name: str) -> None:
        """Delete the record of an exited process."""
        if self._kept.children.pop(name, None) is not None:
            self._write()

    def _write(self) -> None:
        """Write the file. On a full disk the next change writes this one too."""
        try:
            write_private(self._path, self._kept.model_dump_json(indent=1))
        except OSError as full:
            if full.errno not in NO_SPACE:
                raise
            log.error("state.unwritten", path=str(self._path), reason=full.strerror)


def read_state(path: Path) -> StateContent:
    """Return the content of the file; empty if it cannot be read, so that ports are chosen again."""
    try:
        return StateContent.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return StateContent()
    except ValidationError as error:
        log.warning("state.unreadable", path=str(path), problems=error.error_count())
        return StateContent()


def is_free(port: int, host: str = LOCALHOST) -> bool:
    """Whether a server could listen on `host`:`port` now."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen()
        except OSError:
            return False
        return True


def _free_port() -> int:
    """Return a free port that no outgoing connection can take before the server listens on it."""
    while not is_free(port := random.randrange(FIRST_PORT, _first_ephemeral_port())):
        pass
    return port


def _first_ephemeral_port() -> int:
    """Return the first port of outgoing connections. Linux starts at 32768 unless configured; others start higher."""
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except FileNotFoundError:
        return EPHEMERAL_PORT
    return first if first > FIRST_PORT else EPHEMERAL_PORT

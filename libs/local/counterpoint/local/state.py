"""What outlives a supervisor: the ports it chose and the processes it left."""

import signal
import socket
import subprocess
from pathlib import Path

import structlog
from pydantic import BaseModel, ConfigDict, ValidationError

from counterpoint.local.listening import LOCALHOST
from counterpoint.local.private import FULL, write_private

log = structlog.get_logger(__name__)


class Birth(BaseModel):
    """A process by number and start time: numbers are used again, the pair is not."""

    model_config = ConfigDict(frozen=True)

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> "Birth | None":
        """The living process `pid`, or None when there is none. A zombie does not live."""
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

    def lives(self) -> bool:
        """Is it this very process that runs under its number?"""
        return Birth.of(self.pid) == self


class Left(BaseModel):
    """A child on record, and the signal that ends it at once without harm to its data."""

    model_config = ConfigDict(frozen=True)

    birth: Birth
    death_signal: signal.Signals


class Kept(BaseModel):
    """The content of a state file."""

    ports: dict[str, int] = {}
    supervisor: Birth | None = None
    children: dict[str, Left] = {}


class State:
    """The state file of one folder. Its user must be alone in that folder."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept = read_state(path)

    @property
    def children(self) -> dict[str, Left]:
        """The children on record, by name."""
        return dict(self._kept.children)

    def port(self, name: str) -> int:
        """The port kept under `name`; when there is none, or another has taken it, one of the system's choice."""
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

    def supervised_by(self, supervisor: Birth | None) -> None:
        """Record who supervises this folder."""
        self._kept.supervisor = supervisor
        self._write()

    def record(self, name: str, left: Left) -> None:
        """Remember a child that was started."""
        self._kept.children[name] = left
        self._write()

    def forget(self, name: str) -> None:
        """Remember that a child has ended."""
        if self._kept.children.pop(name, None) is not None:
            self._write()

    def _write(self) -> None:
        """Keep it. Where the disk is full the next change is kept with this one: whoever reads it is none the wiser."""
        try:
            write_private(self._path, self._kept.model_dump_json(indent=1))
        except OSError as full:
            if full.errno not in FULL:
                raise
            log.error("state.unwritten", path=str(self._path), reason=full.strerror)


def read_state(path: Path) -> Kept:
    """What the file holds. One that cannot be read says nothing: ports are chosen anew."""
    try:
        return Kept.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return Kept()
    except ValidationError as error:
        log.warning("state.unreadable", path=str(path), problems=error.error_count())
        return Kept()


def is_free(port: int, host: str = LOCALHOST) -> bool:
    """Could a server listen on `host`:`port` now?"""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen()
        except OSError:
            return False
        return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

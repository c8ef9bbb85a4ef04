"""The file `endpoints.json`, in which a running stack publishes its addresses and logins to tools."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from counterpoint.local.private_files import write_private
from counterpoint.proto.errors import Transient


class NatsUser(BaseModel):
    """A bus login for people and other systems. With `creds`, a credentials file, the server takes no password."""

    model_config = ConfigDict(frozen=True)

    user: str
    password: str
    inbox_prefix: str
    creds: str | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The login as arguments of `nats.connect`."""
        login = {"user_credentials": self.creds} if self.creds else {"user": self.user, "password": self.password}
        return {**login, "inbox_prefix": self.inbox_prefix.encode()}


class RunningService(BaseModel):
    """A service's process, and the base URL of its health port."""

    model_config = ConfigDict(frozen=True)

    pid: int
    health: str


class RunningEngine(BaseModel):
    """An engine's process, None for an external one, and with `--inspect` a read-only PostgreSQL login."""

    model_config = ConfigDict(frozen=True)

    pid: int | None = None
    dsn: str | None = None


class Endpoints(BaseModel):
    """The file's content; `token` is the administrator's, `certificate` a file that both APIs present."""

    model_config = ConfigDict(frozen=True)

    http: str
    token: str
    nats: str
    users: dict[str, NatsUser]
    lineage: str
    services: dict[str, RunningService]
    certificate: str | None = None
    engines: dict[str, RunningEngine]


def write_endpoints(path: Path, endpoints: Endpoints) -> None:
    """Replace the file with mode 0600."""
    write_private(path, endpoints.model_dump_json(indent=1, exclude_none=True))


def read_endpoints(data_dir: Path) -> Endpoints:
    """Return the endpoints of `data_dir`. Raises `Transient` when no stack is ready there."""
    try:
        return Endpoints.model_validate_json((data_dir / "endpoints.json").read_bytes())
    except FileNotFoundError:
        raise Transient(f"no stack is ready on {data_dir}") from None

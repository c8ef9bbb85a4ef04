"""What a running stack leaves for tools: `endpoints.json`."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from counterpoint.local.private import write_private
from counterpoint.proto.errors import Transient


class NatsUser(BaseModel):
    """A login of the bus for people and other systems."""

    model_config = ConfigDict(frozen=True)

    user: str
    password: str
    inbox_prefix: str


class RunningService(BaseModel):
    """A service's process, and the base URL of its /livez, /readyz and /metrics."""

    model_config = ConfigDict(frozen=True)

    pid: int
    health: str


class RunningEngine(BaseModel):
    """An engine's process (none when it runs elsewhere), and for `--inspect` a read-only login of PostgreSQL."""

    model_config = ConfigDict(frozen=True)

    pid: int | None = None
    dsn: str | None = None


class Endpoints(BaseModel):
    """The file's content; `token` is the laptop administrator's."""

    model_config = ConfigDict(frozen=True)

    http: str
    token: str
    nats: str
    users: dict[str, NatsUser]
    lineage: str
    services: dict[str, RunningService]
    engines: dict[str, RunningEngine]


def write_endpoints(path: Path, endpoints: Endpoints) -> None:
    """Replace the file, mode 0600."""
    write_private(path, endpoints.model_dump_json(indent=1, exclude_none=True))


def read_endpoints(data_dir: Path) -> Endpoints:
    """What runs on `data_dir`. Raises Transient when nothing is ready there."""
    try:
        return Endpoints.model_validate_json((data_dir / "endpoints.json").read_bytes())
    except FileNotFoundError:
        raise Transient(f"nothing is ready on {data_dir}") from None

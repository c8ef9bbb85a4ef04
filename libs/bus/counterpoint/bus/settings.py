"""Settings that every service reads from its environment."""

import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from counterpoint.bus.streams import STREAMS_BYTES


class BusSettings(BaseSettings):
    """The bus, the service's login on it, timeouts and limits.

    A service pulls no more while `workers` deliveries are in progress. Work of a killed process resumes after
    `rpc_timeout_s` + `ack_wait_s` (in the stream spec) + memory's sweep age.
    """

    model_config = SettingsConfigDict(env_prefix="COUNTERPOINT_", env_ignore_empty=True, frozen=True)

    nats_url: str = "nats://127.0.0.1:4222"
    nats_user: str
    nats_password: SecretStr
    nats_ca: Path | None = None
    health_host: str = "127.0.0.1"
    health_port: int = 0
    log_level: str = "info"
    rpc_timeout_s: float = 2.0
    workers: int = 50
    drain_s: float = 15.0

    def tls(self) -> ssl.SSLContext | None:
        """Return the context that checks the server's certificate by `nats_ca`; None without one."""
        return None if self.nats_ca is None else ssl.create_default_context(cafile=self.nats_ca)

    def masked(self) -> dict[str, Any]:
        """Return the effective settings by environment variable, with secrets and logins in URLs masked."""
        values = self.model_dump(mode="json")
        return {f"COUNTERPOINT_{name.upper()}": _without_login(value) for name, value in values.items()}


class ProvisionSettings(BusSettings):
    """The settings of the provisioner."""

    streams_bytes: int = Field(STREAMS_BYTES, ge=1 << 20)


def _without_login(value: Any) -> Any:
    if not isinstance(value, str) or "://" not in value or "@" not in value:
        return value
    parts = urlsplit(value)
    return urlunsplit(parts._replace(netloc=f"**@{parts.netloc.rpartition('@')[2]}"))

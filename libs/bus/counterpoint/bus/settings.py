"""What every service reads from its environment."""

import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from counterpoint.bus.streams import STREAMS_BYTES


class BusSettings(BaseSettings):
    """The bus, the service's own login on it, and how patient it is.

    With `workers` deliveries under way it pulls no more. The recovery time of a killed process is `rpc_timeout_s` +
    `ack_wait_s` (in the stream spec) + memory's sweep age.
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
        """How to check the server's certificate; None without a CA of our own."""
        return None if self.nats_ca is None else ssl.create_default_context(cafile=self.nats_ca)

    def shown(self) -> dict[str, Any]:
        """Return what is in force, by environment variable; secrets and logins in URLs are masked."""
        values = self.model_dump(mode="json")
        return {f"COUNTERPOINT_{name.upper()}": _without_login(value) for name, value in values.items()}


class ProvisionSettings(BusSettings):
    """What the provisioner reads besides."""

    streams_bytes: int = Field(STREAMS_BYTES, ge=1 << 20)


def _without_login(value: Any) -> Any:
    if not isinstance(value, str) or "://" not in value or "@" not in value:
        return value
    parts = urlsplit(value)
    return urlunsplit(parts._replace(netloc=f"**@{parts.netloc.rpartition('@')[2]}"))

"""Settings that every service reads from its environment, secrets also from files."""

import os
import ssl
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SecretsSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from counterpoint.bus.streams import STREAMS_BYTES

SECRETS_DIR = "COUNTERPOINT_SECRETS_DIR"
_CREDENTIALS = ("NATS USER JWT", "USER NKEY SEED")
"""The parts of a credentials file."""
_TLS = frozenset({"tls", "wss"})


class ProcessSettings(BaseSettings):
    """Settings of one process. What is not in the environment may be a file of that name in the folder
    `COUNTERPOINT_SECRETS_DIR`, in capital or small letters, as container platforms mount secrets."""

    model_config = SettingsConfigDict(env_prefix="COUNTERPOINT_", env_ignore_empty=True, frozen=True)

    log_level: str = "info"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources, the first one that has a value wins. Raises `SettingsError` if the folder is none."""
        folder = os.environ.get(SECRETS_DIR)
        if not folder:
            return init_settings, env_settings
        if not Path(folder).is_dir():
            raise SettingsError(f"{SECRETS_DIR}: {folder} is not a folder")
        return init_settings, env_settings, SecretsSettingsSource(settings_cls, secrets_dir=folder)


class BusSettings(ProcessSettings):
    """The bus, the service's login on it, timeouts and limits.

    The login is the password of `nats_user`, the credentials file `nats_creds` of a server with an operator, or the
    client certificate `nats_cert`, if the server takes the user from it. A service pulls no more while `workers`
    deliveries are in progress. Work of a killed process resumes after `rpc_timeout_s` + `ack_wait_s` (in the stream
    spec) + memory's sweep age.
    """

    nats_url: str = "nats://127.0.0.1:4222"
    nats_user: str
    nats_password: SecretStr | None = None
    nats_creds: Path | None = None
    nats_ca: Path | None = None
    nats_cert: Path | None = None
    nats_key: Path | None = None
    health_host: str = "127.0.0.1"
    health_port: int = 0
    rpc_timeout_s: float = 2.0
    workers: int = 50
    drain_s: float = 15.0

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.nats_password is None and self.nats_creds is None and self.nats_cert is None:
            raise ValueError(f"set {' or '.join(_variable(name) for name in ('nats_password', 'nats_creds'))}")
        if (self.nats_cert is None) != (self.nats_key is None):
            raise ValueError(f"set {_variable('nats_cert')} and {_variable('nats_key')} together")
        return self

    def tls(self) -> ssl.SSLContext | None:
        """Return the context of the connection: it checks the server's certificate by `nats_ca`, or by the well-known
        issuers if the URL begins with `tls:`, and presents `nats_cert`. None for a connection without TLS."""
        if self.nats_ca is None and self.nats_cert is None and urlsplit(self.nats_url).scheme not in _TLS:
            return None
        context = ssl.create_default_context(cafile=self.nats_ca)
        if self.nats_cert is not None:
            context.load_cert_chain(self.nats_cert, self.nats_key)
        return context

    def login(self) -> dict[str, Any]:
        """Return the login as arguments of `nats.connect`. A credentials file is read again at each connection.

        Raises `ValueError` and `OSError` for a file that is none.
        """
        if self.nats_creds is not None:
            text = self.nats_creds.read_text(errors="replace")
            if any(f"BEGIN {part}" not in text for part in _CREDENTIALS):
                raise ValueError(f"{_variable('nats_creds')}: {self.nats_creds} is not a credentials file")
            return {"user_credentials": str(self.nats_creds)}
        if self.nats_password is not None:
            return {"user": self.nats_user, "password": self.nats_password.get_secret_value()}
        return {}

    def masked(self) -> dict[str, Any]:
        """Return the effective settings by environment variable, with secrets and logins in URLs masked."""
        values = self.model_dump(mode="json")
        return {f"COUNTERPOINT_{name.upper()}": _without_login(value) for name, value in values.items()}


class ProvisionSettings(BusSettings):
    """The settings of the provisioner."""

    streams_bytes: int = Field(STREAMS_BYTES, ge=1 << 20)


def _variable(field: str) -> str:
    return f"COUNTERPOINT_{field.upper()}"


def _without_login(value: Any) -> Any:
    if not isinstance(value, str) or "://" not in value or "@" not in value:
        return value
    parts = urlsplit(value)
    return urlunsplit(parts._replace(netloc=f"**@{parts.netloc.rpartition('@')[2]}"))

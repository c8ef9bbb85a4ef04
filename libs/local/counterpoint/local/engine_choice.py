"""The choice between embedded and external engines, by the settings."""

from collections.abc import Callable
from pathlib import Path

from counterpoint.local.credentials import Credentials
from counterpoint.local.engine import Engine
from counterpoint.local.nats import NatsServer
from counterpoint.local.postgres import PostgresServer
from counterpoint.local.settings import local_settings
from counterpoint.local.state_file import StateFile
from counterpoint.local.valkey import ValkeyServer


def choose_engines(
    data_dir: Path, state: StateFile, credentials: Credentials, authorization: Callable[[dict[str, str]], str]
) -> tuple[dict[str, Engine], dict[str, str]]:
    """Return the embedded engines, not started, and the URL of each engine, PostgreSQL's as `PostgresUrls` takes it."""
    settings, logs = local_settings(), data_dir / "logs"
    engines: dict[str, Engine] = {}
    urls: dict[str, str] = {}
    if settings.nats_url is None:
        users, key = authorization(credentials.nats), credentials.nats_store_key
        nats = NatsServer(data_dir / "nats", users, state=state, log=logs / "nats.log", store_key=key)
        engines["nats"], urls["nats"] = nats, nats.url
    else:
        urls["nats"] = settings.nats_url
    if settings.valkey_url is None:
        valkey = ValkeyServer(data_dir / "valkey", credentials.valkey, state=state, log=logs / "valkey.log")
        engines["valkey"], urls["valkey"] = valkey, valkey.url
    else:
        urls["valkey"] = settings.valkey_url
    if settings.postgres_url is None:
        passwords, log_path = credentials.postgres, logs / "postgres.log"
        postgres = PostgresServer(data_dir / "postgres", passwords, state=state, log=log_path)
        engines["postgres"], urls["postgres"] = postgres, postgres.urls.admin
    else:
        urls["postgres"] = settings.postgres_url
    return engines, urls

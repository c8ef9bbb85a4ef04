"""The five services and the two jobs that precede them: their commands and environments."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, assert_never

from counterpoint.local.credentials import Credentials
from counterpoint.local.endpoints import Endpoints, NatsUser, RunningEngine, RunningService
from counterpoint.local.forwarded import COMMON, FORWARDED
from counterpoint.local.listen_addresses import LOCALHOST, origin, reachable
from counterpoint.local.postgres import PostgresUrls
from counterpoint.local.private_files import private_folder
from counterpoint.local.probe import http_ok
from counterpoint.local.process import Forker, ManagedProcess, Program
from counterpoint.local.settings import local_settings
from counterpoint.local.state_file import StateFile
from counterpoint.proto.subjects import inbox_prefix

ServiceName = Literal["memory", "router", "manager", "developer", "lineage"]
JobName = Literal["migrate", "provision", "index"]

SERVICES: tuple[ServiceName, ...] = ("memory", "router", "manager", "developer", "lineage")
NATS_USERS = ("provisioner", *SERVICES, "publisher", "observer")

COMMANDS: Mapping[ServiceName | JobName, tuple[str, ...]] = {
    "migrate": (sys.executable, "-m", "counterpoint.memory.record.migrate"),
    "index": (sys.executable, "-m", "counterpoint.memory.search.index"),
    "provision": (sys.executable, "-m", "counterpoint.bus.provision"),
    **{name: (sys.executable, "-m", f"counterpoint.{name}.main") for name in SERVICES},
}
"""The command of each service and job."""


NATS_TLS = ("NATS_CA", "NATS_CERT", "NATS_KEY")
"""Settings of TLS to the bus."""
_OUTSIDE = (
    "MODEL",
    "MODEL_MANAGER",
    "MODEL_DEVELOPER",
    "MODEL_ROUTER",
    "MODEL_SESSIONS",
    "REPLAY_MODELS",
    "EMBEDDING_MODEL",
    "EMBEDDING_MODELS",
    "SEARCH_URL",
)
"""Settings that configure a provider. Without any of them the manager gets no provider keys."""
_FOLDER = "file:"
_CAPABILITY_LIFE_S = 8 * 86_400.0
"""Default of memory's setting."""
_STOP_S = 5.0
"""Seconds that a service has to end after its deliveries were drained."""
_PROVIDERS = re.compile(
    r"(?!COUNTERPOINT_)(?:[A-Z0-9_]+_(?:API_KEY|API_BASE|BASE_URL|API_VERSION)|(?:AWS|AZURE|VERTEX|VERTEXAI)_[A-Z0-9_]+"
    r"|GOOGLE_APPLICATION_CREDENTIALS|SSL_CERT_FILE|HTTPS?_PROXY|NO_PROXY|https?_proxy|no_proxy)"
)
"""Prefixes and names of variables with provider keys, addresses and proxies, as LiteLLM and its clients read them."""


@dataclass(frozen=True)
class ServiceParameters:
    """The inputs of the environments. Hosts are bind addresses."""

    data_dir: Path
    nats_url: str
    postgres: PostgresUrls
    valkey_url: str
    http_port: int
    lineage_port: int
    gateway_port: int
    credentials: Credentials
    inherited: Mapping[str, str]
    http_host: str = LOCALHOST
    lineage_host: str = LOCALHOST
    gateway_host: str = LOCALHOST
    tls_cert: str = ""
    tls_key: str = ""
    nats_creds: Path | None = None
    streams_bytes: int | None = None
    listeners: Mapping[str, int] = field(default_factory=dict)
    """File descriptors of listening sockets that services inherit, by service."""


def environment(name: ServiceName | JobName, wiring: ServiceParameters) -> dict[str, str]:
    """Return the whole environment of one process, with its own secrets only."""
    env = base_environment(wiring.inherited) | _forwarded(wiring, "LOG_LEVEL")
    match name:
        case "migrate":
            owner = {"COUNTERPOINT_POSTGRES_OWNER_URL": wiring.postgres.owner}
            return env | owner | {"COUNTERPOINT_INSTALLATION": wiring.credentials.installation}
        case "index":
            return env | {"COUNTERPOINT_POSTGRES_OWNER_URL": wiring.postgres.owner}
        case "provision":
            return env | _nats(wiring, "provisioner") | _forwarded(wiring, *NATS_TLS) | _streams(wiring)
        case "memory" | "router" | "manager" | "developer" | "lineage":
            data = {"COUNTERPOINT_DATA_DIR": str(wiring.data_dir / name)}
            given = _forwarded(wiring, *COMMON, *FORWARDED[name])
            return env | given | _nats(wiring, name) | data | _own(name, wiring)
        case _:
            assert_never(name)


def capability_life_s(inherited: Mapping[str, str]) -> float:
    """Return the seconds for which memory makes capabilities valid under this environment."""
    return float(inherited.get("COUNTERPOINT_CAPABILITY_LIFE_S") or _CAPABILITY_LIFE_S)


def base_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of every process, without any setting."""
    return {
        "PATH": inherited.get("PATH", "/usr/bin:/bin"),
        "HOME": inherited.get("HOME", "/"),
        "LANG": inherited.get("LANG", "C.UTF-8"),
        # An arena per thread fragments a fifth of memory's RAM.
        "MALLOC_ARENA_MAX": "2",
    }


def _inherited(wiring: ServiceParameters, *names: str) -> dict[str, str]:
    return {name: wiring.inherited[name] for name in names if name in wiring.inherited}


def _forwarded(wiring: ServiceParameters, *settings: str) -> dict[str, str]:
    return _inherited(wiring, *(f"COUNTERPOINT_{each}" for each in settings))


def _nats(wiring: ServiceParameters, user: str) -> dict[str, str]:
    return nats_login(wiring.nats_url, user, wiring.credentials, wiring.nats_creds)


def nats_login(url: str, user: str, credentials: Credentials, creds: Path | None) -> dict[str, str]:
    """Return the variables of a user's login on the bus: a credentials file of the folder `creds`, or the password."""
    login = {"COUNTERPOINT_NATS_URL": url, "COUNTERPOINT_NATS_USER": user}
    if creds is not None:
        return login | {"COUNTERPOINT_NATS_CREDS": str(creds_file(creds, user))}
    return login | {"COUNTERPOINT_NATS_PASSWORD": credentials.nats[user]}


def creds_file(folder: Path, user: str) -> Path:
    """Return the path of a user's credentials file."""
    return folder / f"{user}.creds"


def _streams(wiring: ServiceParameters) -> dict[str, str]:
    return {} if wiring.streams_bytes is None else {"COUNTERPOINT_STREAMS_BYTES": str(wiring.streams_bytes)}


def _gateway(wiring: ServiceParameters) -> dict[str, str]:
    return {"COUNTERPOINT_GATEWAY_URL": origin(wiring.gateway_host, wiring.gateway_port)}


def _tls(wiring: ServiceParameters) -> dict[str, str]:
    if not wiring.tls_cert:
        return {}
    return {"COUNTERPOINT_TLS_CERT": wiring.tls_cert, "COUNTERPOINT_TLS_KEY": wiring.tls_key}


def _listener(name: ServiceName, server: str, wiring: ServiceParameters) -> dict[str, str]:
    return {f"COUNTERPOINT_{server}_FD": str(wiring.listeners[name])} if name in wiring.listeners else {}


def _own(name: ServiceName, wiring: ServiceParameters) -> dict[str, str]:
    match name:
        case "memory":
            return {
                "COUNTERPOINT_POSTGRES_URL": wiring.postgres.memory,
                "COUNTERPOINT_VALKEY_URL": wiring.valkey_url,
                "COUNTERPOINT_SIGNING_KEYS": wiring.credentials.signing_keys_setting,
                "COUNTERPOINT_ADMIN_TOKEN": wiring.credentials.admin_token,
                "COUNTERPOINT_AUDIT_KEY": wiring.credentials.audit_key,
            } | _gateway(wiring)
        case "router":
            port = str(wiring.http_port)
            own = {"COUNTERPOINT_HTTP_HOST": wiring.http_host, "COUNTERPOINT_HTTP_PORT": port}
            return own | _gateway(wiring) | _tls(wiring) | _listener(name, "HTTP", wiring)
        case "lineage":
            port = str(wiring.lineage_port)
            host = wiring.lineage_host
            own = {"COUNTERPOINT_LINEAGE_HOST": host, "COUNTERPOINT_LINEAGE_PORT": port}
            return own | _tls(wiring) | _listener(name, "LINEAGE", wiring)
        case "manager":
            outside = [each for each in _forwarded(wiring, *_OUTSIDE).values() if not each.startswith(_FOLDER)]
            providers = [each for each in wiring.inherited if outside and _PROVIDERS.fullmatch(each)]
            port = str(wiring.gateway_port)
            own = {"COUNTERPOINT_GATEWAY_HOST": wiring.gateway_host, "COUNTERPOINT_GATEWAY_PORT": port}
            return own | _inherited(wiring, *providers)
        case "developer":
            return _gateway(wiring)
        case _:
            assert_never(name)


class ServiceProcess(ManagedProcess):
    """One of the five services. Its health port reports readiness."""

    def __init__(
        self,
        name: ServiceName,
        argv: tuple[str, ...],
        wiring: ServiceParameters,
        state: StateFile,
        forker: Forker | None = None,
    ) -> None:
        super().__init__(name, state)
        self._argv = argv
        self._forker = forker
        self._env = environment(name, wiring)
        self._data = wiring.data_dir / name
        self._log = wiring.data_dir / "logs" / f"{name}.log"
        self._health_host = reachable(self._env.get("COUNTERPOINT_HEALTH_HOST", LOCALHOST))
        self._health_port = 0
        self._fds = (wiring.listeners[name],) if name in wiring.listeners else ()
        self.drain_s = float(self._env.get("COUNTERPOINT_DRAIN_S", self.drain_s)) + _STOP_S

    @property
    def health(self) -> str:
        """Base URL of /livez, /readyz, /metrics and /settings."""
        return origin(self._health_host, self._health_port)

    async def prepare(self) -> Program:
        """Create its folder and choose its health port, the stored one if it is free."""
        private_folder(self._data)
        self._health_port = self.state.port(f"{self.name}.health")
        env = self._env | {"COUNTERPOINT_HEALTH_PORT": str(self._health_port)}
        forker, self._forker = self._forker, None
        return Program(argv=self._argv, env=env, log=self._log, fds=self._fds, forker=forker)

    async def answers(self) -> bool:
        """Whether it is ready: connected, with its consumers and memory."""
        return await http_ok(self._health_port, "/readyz", self._health_host)


def endpoints_of(
    wiring: ServiceParameters,
    services: Mapping[str, ServiceProcess],
    engines: Mapping[str, ManagedProcess],
    *,
    inspect: bool,
) -> Endpoints:
    """Return the addresses and processes of a running stack; with `inspect` also the login that reads the database."""
    tls = bool(wiring.tls_cert)
    running = {name: RunningEngine(pid=engine.pid) for name, engine in engines.items()}
    if inspect:
        pid = running["postgres"].pid if "postgres" in running else None
        running["postgres"] = RunningEngine(pid=pid, dsn=wiring.postgres.inspect)
    return Endpoints(
        http=origin(wiring.http_host, wiring.http_port, tls=tls),
        certificate=wiring.tls_cert or None,
        token=wiring.credentials.admin_token,
        nats=wiring.nats_url,
        users={
            user: _nats_user(user, wiring)
            for user in dict.fromkeys(("publisher", "observer", *local_settings().publishers))
        },
        lineage=origin(wiring.lineage_host, wiring.lineage_port, tls=tls),
        services={name: RunningService(pid=service.pid, health=service.health) for name, service in services.items()},
        engines=running,
    )


def _nats_user(user: str, wiring: ServiceParameters) -> NatsUser:
    creds = None if wiring.nats_creds is None else str(creds_file(wiring.nats_creds, user))
    return NatsUser(user=user, password=wiring.credentials.nats[user], inbox_prefix=inbox_prefix(user), creds=creds)

"""The Secrets of the chart, and requests for certificates, as objects of Kubernetes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never
from urllib.parse import quote, urlsplit

from counterpoint.local.credentials import Credentials
from counterpoint.local.nats_certificates import CertificateAuthority, CertificateIssuer
from counterpoint.local.postgres import PostgresUrls
from counterpoint.local.service import creds_file

NATS_SERVICES = ("router", "manager", "developer", "lineage")
NatsLogin = Path | CertificateAuthority | CertificateIssuer | None


@dataclass(frozen=True)
class EngineUrls:
    """The addresses of engines inside the cluster. Valkey gets the stored password if its URL has none.

    `nats_login` is None for passwords, a folder with the credentials file of each user, for a NATS server with an
    operator, or the source of client certificates.
    """

    postgres: str
    valkey: str | None = None
    qdrant: str | None = None
    qdrant_api_key: str | None = None
    nats_login: NatsLogin = None


def secret_list(
    credentials: Credentials, engines: EngineUrls, accounts: str, fullname: str, namespace: str | None = None
) -> dict[str, Any]:
    """Return a List of Secrets: one for each service and job, and those for the servers of NATS and the databases.

    An issuer of certificates adds its Certificates. Raises `OSError` for a credentials file that cannot be read.
    `accounts` is the configuration of the bus's users; `fullname` is the prefix of all names in the chart.
    """
    secrets = {name: _opaque(data) for name, data in _workloads(credentials, engines).items() if data}
    # A variable whose value begins with a digit may be read as a number by the server's configuration.
    store_key = {"COUNTERPOINT_NATS_STORE_KEY": f"n{credentials.nats_store_key}"}
    secrets["nats-accounts"] = _opaque({"accounts.conf": accounts} | store_key)
    for role, password in credentials.postgres.model_dump(exclude={"superuser"}).items():
        login = {"username": f"counterpoint_{role}", "password": password}
        secrets[f"postgres-{role}"] = {"type": "kubernetes.io/basic-auth", "stringData": login}
    secrets["valkey"] = _opaque({"password": credentials.valkey})
    if engines.qdrant_api_key:
        secrets["qdrant"] = _opaque({"api-key": engines.qdrant_api_key})
    return {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {"apiVersion": "v1", "kind": "Secret", "metadata": _metadata(f"{fullname}-{name}", namespace), **secret}
            for name, secret in secrets.items()
        ]
        + _certificates(engines.nats_login, fullname, namespace),
    }


def _certificates(login: NatsLogin, fullname: str, namespace: str | None) -> list[dict[str, Any]]:
    if not isinstance(login, CertificateIssuer):
        return []
    users = {"provision": "provisioner"} | {name: name for name in (*NATS_SERVICES, "memory")}
    return [
        login.request(user, _metadata(f"{fullname}-nats-{workload}", namespace)) for workload, user in users.items()
    ]


def _workloads(credentials: Credentials, engines: EngineUrls) -> dict[str, dict[str, str]]:
    """Return the variables of each service and job that are secrets."""
    urls = PostgresUrls.of(engines.postgres, credentials.postgres)
    found = {name: _bus(credentials, engines, name) for name in NATS_SERVICES}
    memory = {
        "POSTGRES_URL": urls.memory,
        "SIGNING_KEYS": credentials.signing_keys_setting,
        "AUDIT_KEY": credentials.audit_key,
        "ADMIN_TOKEN": credentials.admin_token,
        "VALKEY_URL": engines.valkey and _with_password(engines.valkey, credentials.valkey),
        "QDRANT_URL": engines.qdrant,
        "QDRANT_API_KEY": engines.qdrant_api_key,
    }
    found["memory"] = _bus(credentials, engines, "memory") | {
        f"COUNTERPOINT_{name}": value for name, value in memory.items() if value
    }
    owner = {"COUNTERPOINT_POSTGRES_OWNER_URL": urls.owner}
    found["migrate"] = owner | {"COUNTERPOINT_INSTALLATION": credentials.installation}
    return found | {"index": owner, "provision": _bus(credentials, engines, "provisioner")}


def _bus(credentials: Credentials, engines: EngineUrls, user: str) -> dict[str, str]:
    match engines.nats_login:
        case None:
            return {"COUNTERPOINT_NATS_PASSWORD": credentials.nats[user]}
        case Path():
            return {"nats.creds": creds_file(engines.nats_login, user).read_text()}
        case CertificateAuthority():
            certificate, key = engines.nats_login.issue(user)
            return {"nats.crt": certificate, "nats.key": key}
        case CertificateIssuer():
            return {}
        case _:
            assert_never(engines.nats_login)


def _with_password(url: str, password: str) -> str:
    parts = urlsplit(url)
    if parts.username or parts.password:
        return url
    return parts._replace(netloc=f":{quote(password, safe='')}@{parts.netloc}").geturl()


def _opaque(data: dict[str, str]) -> dict[str, Any]:
    return {"type": "Opaque", "stringData": data}


def _metadata(name: str, namespace: str | None) -> dict[str, str]:
    return {"name": name} | ({"namespace": namespace} if namespace else {})

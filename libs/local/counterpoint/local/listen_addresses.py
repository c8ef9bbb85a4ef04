"""Bind addresses of the stack's HTTP servers, from options and the environment."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from counterpoint.proto.errors import ErrorCode, Permanent, Problem

LOCALHOST = "127.0.0.1"
HTTP_PORT = 8484
MAX_PORT = 65_535


@dataclass(frozen=True)
class ListenAddresses:
    """Hosts and ports of the HTTP API, the OpenLineage API and the gateway. Port 0 selects a free one, then kept.

    With the PEM files of a certificate chain and its key, both APIs speak TLS; empty: they do not.
    """

    http_port: int = HTTP_PORT
    http_host: str = LOCALHOST
    lineage_port: int = 0
    lineage_host: str = LOCALHOST
    gateway_port: int = 0
    gateway_host: str = LOCALHOST
    tls_cert: str = ""
    tls_key: str = ""


def listen_addresses(
    environ: Mapping[str, str],
    *,
    host: str | None = None,
    http_port: int | None = None,
    lineage_port: int | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
) -> ListenAddresses:
    """Read the addresses from the environment; options take precedence. Raises `Permanent` `invalid`.

    `host` applies to both APIs, not to the gateway, which only our services use.
    """
    addresses = ListenAddresses(
        http_port=_port(environ, "HTTP_PORT", HTTP_PORT) if http_port is None else http_port,
        http_host=host or _host(environ, "HTTP_HOST"),
        lineage_port=_port(environ, "LINEAGE_PORT", 0) if lineage_port is None else lineage_port,
        lineage_host=host or _host(environ, "LINEAGE_HOST"),
        gateway_port=_port(environ, "GATEWAY_PORT", 0),
        gateway_host=_host(environ, "GATEWAY_HOST"),
        tls_cert=_file(tls_cert or environ.get("COUNTERPOINT_TLS_CERT")),
        tls_key=_file(tls_key or environ.get("COUNTERPOINT_TLS_KEY")),
    )
    check_certificate(addresses)
    return addresses


def check_certificate(addresses: ListenAddresses) -> None:
    """Load the certificate, if there is one. Raises `Permanent` `invalid`."""
    if not addresses.tls_cert and not addresses.tls_key:
        return
    field = "COUNTERPOINT_TLS_CERT, COUNTERPOINT_TLS_KEY"
    if not addresses.tls_cert or not addresses.tls_key:
        raise Permanent(ErrorCode.INVALID, (Problem(field=field, problem="are given both or not at all"),))
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(addresses.tls_cert, addresses.tls_key)
    except (OSError, ssl.SSLError) as error:
        problem = f"{error}: give PEM files of the certificate chain and of its key, without a passphrase"
        raise Permanent(ErrorCode.INVALID, (Problem(field=field, problem=problem),)) from None


def exposure(addresses: ListenAddresses) -> tuple[str, str] | None:
    """Return a warning and what to do if other machines can reach an API, None if none can."""
    exposed = [host for host in (addresses.http_host, addresses.lineage_host) if not _is_loopback(host)]
    if not exposed:
        return None
    remedy = (
        "keep the token in endpoints.json, which may do everything, to yourself: create a principal for each user and"
        " system by `counterpoint principal create`"
    )
    if not addresses.tls_cert:
        remedy += "; encrypt by --tls-cert and --tls-key (COUNTERPOINT_TLS_CERT, _KEY), or by a proxy"
    return f"other machines can reach this one on {exposed[0]}", remedy


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _file(name: str | None) -> str:
    return str(Path(name).absolute()) if name else ""


def reachable(host: str) -> str:
    """Return the address at which this machine reaches a server bound to `host`, which may be a wildcard."""
    try:
        address = ip_address(host)
    except ValueError:
        return host or LOCALHOST
    if not address.is_unspecified:
        return host
    return LOCALHOST if address.version == 4 else "::1"


def origin(host: str, port: int, *, tls: bool = False) -> str:
    """Return the base URL of a server bound to `host`, for clients on this machine."""
    destination, scheme = reachable(host), "https" if tls else "http"
    return f"{scheme}://[{destination}]:{port}" if ":" in destination else f"{scheme}://{destination}:{port}"


def _host(environ: Mapping[str, str], name: str) -> str:
    return environ.get(f"COUNTERPOINT_{name}") or LOCALHOST


def _port(environ: Mapping[str, str], name: str, default: int) -> int:
    variable = f"COUNTERPOINT_{name}"
    text = environ.get(variable) or str(default)
    if text.isascii() and text.isdigit() and int(text) <= MAX_PORT:
        return int(text)
    raise Permanent(ErrorCode.INVALID, (Problem(field=variable, problem=f"{text} is not a port: 0 to {MAX_PORT}"),))

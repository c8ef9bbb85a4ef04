"""Bind addresses of the stack's HTTP servers, from options and the environment."""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from counterpoint.proto.errors import ErrorCode, Permanent, Problem

LOCALHOST = "127.0.0.1"
HTTP_PORT = 8484
MAX_PORT = 65_535


@dataclass(frozen=True)
class ListenAddresses:
    """Hosts and ports of the HTTP API, the OpenLineage API and the gateway. Port 0 selects a free one, then kept."""

    http_port: int = HTTP_PORT
    http_host: str = LOCALHOST
    lineage_port: int = 0
    lineage_host: str = LOCALHOST
    gateway_port: int = 0
    gateway_host: str = LOCALHOST


def listen_addresses(
    environ: Mapping[str, str],
    *,
    host: str | None = None,
    http_port: int | None = None,
    lineage_port: int | None = None,
) -> ListenAddresses:
    """Read the addresses from the environment; options take precedence. Raises `Permanent` `invalid`.

    `host` applies to both APIs, not to the gateway, which only our services use.
    """
    return ListenAddresses(
        http_port=_port(environ, "HTTP_PORT", HTTP_PORT) if http_port is None else http_port,
        http_host=host or _host(environ, "HTTP_HOST"),
        lineage_port=_port(environ, "LINEAGE_PORT", 0) if lineage_port is None else lineage_port,
        lineage_host=host or _host(environ, "LINEAGE_HOST"),
        gateway_port=_port(environ, "GATEWAY_PORT", 0),
        gateway_host=_host(environ, "GATEWAY_HOST"),
    )


def reachable(host: str) -> str:
    """Return the address at which this machine reaches a server bound to `host`, which may be a wildcard."""
    try:
        address = ip_address(host)
    except ValueError:
        return host or LOCALHOST
    if not address.is_unspecified:
        return host
    return LOCALHOST if address.version == 4 else "::1"


def origin(host: str, port: int) -> str:
    """Return the base URL of a server bound to `host`, for clients on this machine."""
    destination = reachable(host)
    return f"http://[{destination}]:{port}" if ":" in destination else f"http://{destination}:{port}"


def _host(environ: Mapping[str, str], name: str) -> str:
    return environ.get(f"COUNTERPOINT_{name}") or LOCALHOST


def _port(environ: Mapping[str, str], name: str, default: int) -> int:
    variable = f"COUNTERPOINT_{name}"
    text = environ.get(variable) or str(default)
    if text.isascii() and text.isdigit() and int(text) <= MAX_PORT:
        return int(text)
    raise Permanent(ErrorCode.INVALID, (Problem(field=variable, problem=f"{text} is not a port: 0 to {MAX_PORT}"),))

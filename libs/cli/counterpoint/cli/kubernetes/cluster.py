"""A cluster's API: the list of its events, and what changes after it."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from counterpoint.cli.errors import CommandError, NotReachable, UsageError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The folder with the token and the certificate of a service account, in every pod."""
PAGE = 500
WATCH_S = 300
_SLACK_S = 30.0


class VersionGone(Exception):
    """The API does not know the changes after a version any more."""


class ClusterRefused(CommandError):
    """The API of the cluster refuses the service account."""


@dataclass(frozen=True)
class ClusterAddress:
    """The URL of the API, and the files with its token and certificate. The token is read again for each request."""

    url: str
    token: Path | None
    certificate: Path | None


def address_of(api: str | None, token: Path | None, ca: Path | None, environ: Mapping[str, str]) -> ClusterAddress:
    """Return the address from options, or that of the cluster in which the command runs. Raises `UsageError`."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if api is None and host is None:
        raise UsageError("this is no pod of a cluster: KUBERNETES_SERVICE_HOST is not set; give the API with --api")
    host = f"[{host}]" if host and ":" in host else host
    url = api or f"https://{host}:{port}"
    token = token or (ACCOUNT / "token" if api is None else None)
    ca = ca or (ACCOUNT / "ca.crt" if api is None else None)
    for file in (token, ca):
        if file is not None and not os.access(file, os.R_OK):
            raise UsageError(f"{file} cannot be read")
    return ClusterAddress(url.rstrip("/"), token, ca)


class Cluster:
    """The events of a cluster, of one namespace if it is given."""

    def __init__(self, address: ClusterAddress, namespace: str | None) -> None:
        import ssl

        verify = ssl.create_default_context(cafile=address.certificate) if address.certificate else True
        self._address = address
        self._path = f"/api/v1/namespaces/{namespace}/events" if namespace else "/api/v1/events"
        timeout = httpx.Timeout(WATCH_S + _SLACK_S, connect=10.0)
        self._client = httpx.Client(base_url=address.url, verify=verify, timeout=timeout, trust_env=False)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def events(self) -> tuple[list[Any], str]:
        """Return all events, and the version of the list. Raises `NotReachable`, `ClusterRefused` and `VersionGone`."""
        found, following = list[Any](), ""
        while True:
            params = {"limit": str(PAGE), **({"continue": following} if following else {})}
            try:
                page = _checked(self._client.get(self._path, params=params, headers=self._headers())).json()
                found += page.get("items") or []
                following, version = page["metadata"].get("continue") or "", page["metadata"]["resourceVersion"]
            except httpx.TransportError as error:
                raise _not_reachable(error) from None
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise NotReachable("the API of the cluster answers with no list of events") from error
            if not following:
                return found, str(version)

    def changes(self, version: str) -> Iterator[tuple[Any, str]]:
        """Yield each event that is new or happened again, with its version, until the API ends the watch.

        The event of a bookmark is None. Raises `NotReachable`, `ClusterRefused` and `VersionGone`.
        """
        params = {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
        }
        try:
            with self._client.stream("GET", self._path, params=params, headers=self._headers()) as response:
                _checked(response)
                for line in response.iter_lines():
                    if line.strip():
                        yield from _change(line)
        except httpx.TransportError as error:
            raise _not_reachable(error) from None

    def _headers(self) -> dict[str, str]:
        token = self._address.token
        return {"Authorization": f"Bearer {token.read_text().strip()}"} if token else {}


def _change(line: str) -> Iterator[tuple[Any, str]]:
    try:
        change = json.loads(line)
        kind, item = change["type"], change["object"]
        if kind == "ERROR":
            if item.get("code") == httpx.codes.GONE:
                raise VersionGone
            raise NotReachable(f"the API of the cluster ends the watch with {item.get('code')}")
        version = str(item["metadata"]["resourceVersion"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotReachable("the API of the cluster sends what is no change of an event") from error
    if kind == "BOOKMARK":
        yield None, version
    elif kind in ("ADDED", "MODIFIED"):
        yield item, version


def _checked(response: httpx.Response) -> httpx.Response:
    status = response.status_code
    if status == httpx.codes.GONE:
        raise VersionGone
    if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        raise ClusterRefused(f"the API of the cluster answers {status}: the service account needs get, list and watch")
    if not response.is_success:
        raise NotReachable(f"the API of the cluster answers {status}")
    return response


def _not_reachable(error: Exception) -> NotReachable:
    return NotReachable(f"no response from the API of the cluster ({type(error).__name__})")

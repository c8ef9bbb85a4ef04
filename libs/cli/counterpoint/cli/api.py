"""Client of the HTTP API: requests, problems, and resumable event streams."""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx
from httpx_sse import SSEError, connect_sse

from counterpoint.cli.address import Address
from counterpoint.cli.errors import ApiError, NotReachable

WAIT_S = 30
"""Maximum time that one request waits for a task."""
_TIMEOUT = httpx.Timeout(60.0, connect=5.0)
_QUIET_S = 90.0
"""Read timeout of a stream, after which it is opened again."""
_RETRY_S = 0.5
_PATIENCE_S = 20.0
"""Duration of retries while the API is unavailable: the time of a restart."""
_TRANSIENT = frozenset({502, 503, 504})


@dataclass(frozen=True)
class ServerEvent:
    """An event of a stream. `data` is a CloudEvent, except for the event `gap`."""

    id: str
    name: str
    data: dict[str, Any]


class ApiClient:
    """A connection to the API as one principal."""

    def __init__(self, address: Address) -> None:
        self.url = address.url
        self._client = httpx.Client(
            base_url=address.url,
            headers={"Authorization": f"Bearer {address.token}", "Accept": "application/json"},
            timeout=_TIMEOUT,
            verify=address.verification(),
            trust_env=False,
        )

    def __enter__(self) -> "ApiClient":
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()

    def get(self, path: str, **params: Any) -> Any:
        """Return the resource at `path`. Parameters that are None are left out. Raises ApiError or NotReachable."""
        return self._json("GET", path, params=_without_none(params))

    def post(
        self, path: str, body: Mapping[str, Any] | str, headers: Mapping[str, str] | None = None, **params: Any
    ) -> Any:
        """Send `body`, JSON text or fields, and return the reply. Fields that are None are left out.

        Raises ApiError or NotReachable.
        """
        content = body if isinstance(body, str) else _json_of(_without_none(body))
        headers = {"Content-Type": "application/json"} | dict(headers or {})
        return self._json("POST", path, content=content, headers=headers, params=_without_none(params))

    def post_once(self, path: str, body: Mapping[str, Any], key: str | None) -> Any:
        """Send `body` with an Idempotency-Key, random by default. Repeats while unavailable."""
        headers = {"Idempotency-Key": key or uuid4().hex}
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return self.post(path, body, headers=headers)
            except ApiError as refused:
                if refused.status not in _TRANSIENT or time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_S)

    def put(self, path: str, body: Mapping[str, Any], **params: Any) -> Any:
        """Replace the resource at `path` and return the reply. Sends None as null. Raises ApiError or NotReachable."""
        headers = {"Content-Type": "application/json"}
        return self._json("PUT", path, content=_json_of(body), headers=headers, params=_without_none(params))

    def delete(self, path: str, **params: Any) -> Any:
        """Delete the resource at `path` and return the reply. Raises ApiError or NotReachable."""
        return self._json("DELETE", path, params=_without_none(params))

    def pages(self, path: str, limit: int, **params: Any) -> dict[str, Any]:
        """Return the first `limit` items of a list, from as many pages as needed, and the cursor after them."""
        items: list[Any] = []
        cursor = None
        while len(items) < limit:
            page = self.get(path, cursor=cursor, limit=min(limit - len(items), 200), **params)
            items += page["items"]
            cursor = page.get("next_cursor")
            if cursor is None:
                break
        return {"items": items, "next_cursor": cursor}

    def stream(
        self,
        path: str,
        *,
        last_id: str | None = None,
        opened: threading.Event | None = None,
        stopped: threading.Event | None = None,
        **params: Any,
    ) -> Iterator[ServerEvent]:
        """Yield the events at `path` after `last_id`. A broken connection is resumed after the last event.

        Sets `opened` when the stream is accepted; ends when `stopped` is set and the connection breaks. Raises
        NotReachable when the first connection fails, ApiError when the stream is refused.
        """
        opened, stopped = opened or threading.Event(), stopped or threading.Event()
        while not stopped.is_set():
            headers = {"Last-Event-ID": last_id} if last_id is not None else {}
            timeout = httpx.Timeout(60.0, connect=5.0, read=_QUIET_S)
            try:
                with connect_sse(
                    self._client, "GET", path, headers=headers, params=_without_none(params), timeout=timeout
                ) as source:
                    _check(source.response)
                    opened.set()
                    for event in source.iter_sse():
                        last_id = event.id or last_id
                        if event.data:
                            yield ServerEvent(event.id, event.event, json.loads(event.data))
            except (httpx.TransportError, SSEError) as broken:
                if not opened.is_set():
                    raise self._not_reachable(broken) from None
            except ApiError as refused:
                if refused.status not in _TRANSIENT or not opened.is_set():
                    raise
            stopped.wait(_RETRY_S)

    def _json(self, method: str, path: str, **request: Any) -> Any:
        with self._transport_errors():
            response = self._client.request(method, path, **request)
        _check(response)
        return response.json() if response.content else {}

    @contextmanager
    def _transport_errors(self) -> Iterator[None]:
        try:
            yield
        except httpx.TransportError as failure:
            raise self._not_reachable(failure) from None

    def _not_reachable(self, failure: Exception) -> NotReachable:
        reason = str(failure) or type(failure).__name__
        return NotReachable(
            f"no response from {self.url} ({reason}); check with `counterpoint status`, start the stack with "
            "`counterpoint up`"
        )


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _json_of(value: Any) -> bytes:
    """Encode without escapes where possible: an escaped character is three times as long."""
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def _check(response: httpx.Response) -> None:
    if response.is_success:
        return
    response.read()
    try:
        body = response.json()
    except ValueError:
        body = {"detail": response.text[:500]}
    raise ApiError(response.status_code, body if isinstance(body, dict) else {"detail": str(body)[:500]})

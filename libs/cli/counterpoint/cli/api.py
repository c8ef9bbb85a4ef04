"""The HTTP API as the commands use it: requests, problems, and event streams that resume."""

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
from counterpoint.cli.errors import NotReachable, Refused

WAIT_S = 30
"""The longest that one request waits for a task."""
_TIMEOUT = httpx.Timeout(60.0, connect=5.0)
_QUIET_S = 90.0
"""A stream that says nothing for so long, not even a keep-alive, is opened again."""
_RETRY_S = 0.5
_PATIENCE_S = 20.0
"""How long what is unavailable is asked again: as long as an engine that restarts takes."""
_TRANSIENT = frozenset({502, 503, 504})


@dataclass(frozen=True)
class Event:
    """One event of a stream: its id to resume after, its name, and what it carries: a CloudEvent, but for `gap`."""

    id: str
    name: str
    data: dict[str, Any]


class Api:
    """A connection to one Counterpoint as one principal. `transport` replaces the network in tests."""

    def __init__(self, address: Address, transport: httpx.BaseTransport | None = None) -> None:
        self.url = address.url
        self._client = httpx.Client(
            base_url=address.url,
            headers={"Authorization": f"Bearer {address.token}", "Accept": "application/json"},
            timeout=_TIMEOUT,
            transport=transport,
            trust_env=False,
        )

    def __enter__(self) -> "Api":
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()

    def get(self, path: str, **params: Any) -> Any:
        """What is at `path`. Parameters that are None are left out. Raises Refused or NotReachable."""
        return self._json("GET", path, params=_given(params))

    def post(
        self, path: str, body: Mapping[str, Any] | str, headers: Mapping[str, str] | None = None, **params: Any
    ) -> Any:
        """The reply to `body`: JSON text as it is, or fields, of which those that are None are left out.

        Raises Refused or NotReachable.
        """
        content = body if isinstance(body, str) else _json_of(_given(body))
        headers = {"Content-Type": "application/json"} | dict(headers or {})
        return self._json("POST", path, content=content, headers=headers, params=_given(params))

    def post_once(self, path: str, body: Mapping[str, Any], key: str | None) -> Any:
        """The same under an Idempotency-Key, one of its own where there is none; sent again while it is unavailable."""
        headers = {"Idempotency-Key": key or uuid4().hex}
        until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return self.post(path, body, headers=headers)
            except Refused as refused:
                if refused.status not in _TRANSIENT or time.monotonic() > until:
                    raise
            time.sleep(_RETRY_S)

    def put(self, path: str, body: Mapping[str, Any], **params: Any) -> Any:
        """The reply to `body` in the place of what is at `path`; None is sent. Raises Refused or NotReachable."""
        headers = {"Content-Type": "application/json"}
        return self._json("PUT", path, content=_json_of(body), headers=headers, params=_given(params))

    def delete(self, path: str, **params: Any) -> Any:
        """The reply to taking away what is at `path`. Raises Refused or NotReachable."""
        return self._json("DELETE", path, params=_given(params))

    def pages(self, path: str, limit: int, **params: Any) -> dict[str, Any]:
        """The first `limit` items of a list, over as many pages as it takes, and the cursor after them."""
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
    ) -> Iterator[Event]:
        """The events at `path`, after `last_id`; opened again after the last one seen whenever it breaks.

        Sets `opened` when it has been accepted; ends when `stopped` is set and the connection breaks. Raises
        NotReachable when it cannot be opened at first, Refused when it is not allowed.
        """
        opened, stopped = opened or threading.Event(), stopped or threading.Event()
        while not stopped.is_set():
            headers = {"Last-Event-ID": last_id} if last_id is not None else {}
            timeout = httpx.Timeout(60.0, connect=5.0, read=_QUIET_S)
            try:
                with connect_sse(
                    self._client, "GET", path, headers=headers, params=_given(params), timeout=timeout
                ) as source:
                    _check(source.response)
                    opened.set()
                    for event in source.iter_sse():
                        last_id = event.id or last_id
                        if event.data:
                            yield Event(event.id, event.event, json.loads(event.data))
            except (httpx.TransportError, SSEError) as broken:
                if not opened.is_set():
                    raise self._away(broken) from None
            except Refused as refused:
                if refused.status not in _TRANSIENT or not opened.is_set():
                    raise
            stopped.wait(_RETRY_S)

    def _json(self, method: str, path: str, **request: Any) -> Any:
        with self._reached():
            response = self._client.request(method, path, **request)
        _check(response)
        return response.json() if response.content else {}

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except httpx.TransportError as failure:
            raise self._away(failure) from None

    def _away(self, failure: Exception) -> NotReachable:
        said = str(failure) or type(failure).__name__
        return NotReachable(
            f"no answer at {self.url} ({said}); `counterpoint status` looks, `counterpoint up` starts it"
        )


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _json_of(value: Any) -> bytes:
    """As short as it can be: an escape takes three times the room of a letter that is no ASCII."""
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
    raise Refused(response.status_code, body if isinstance(body, dict) else {"detail": str(body)[:500]})

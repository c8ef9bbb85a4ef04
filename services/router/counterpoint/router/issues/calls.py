"""Calls to the interface of a forge: limits of its rate, pages, and a repository that has another name.

A redirect is followed to the same host only, and only to learn the name of the repository.
"""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

import httpcore

from counterpoint.proto.messages import utc_now
from counterpoint.router.issues.forge import ForgeError, ForgeNotFound, IssueMoved
from counterpoint.router.notify.outbound import Answer, BlockedAddress, Call, exchange

ANSWER_BYTES = 16 * 1024 * 1024
PAGES_LIMIT = 100
"""Pages of one list; a longer one is an error, and not cut."""
PAUSE_LIMIT_S, PAUSE_DEFAULT_S = 86_400.0, 60.0
_RENAMES = 3
_LIMITED = (b"rate limit", b"abuse detection", b"too many requests")


class RateLimit:
    """The pause that a forge has asked for: no call is made before its end. One for all calls to a tracker."""

    def __init__(self, now: Callable[[], datetime] = utc_now) -> None:
        self._now = now
        self._until: datetime | None = None

    def remaining_s(self) -> float:
        """Return the seconds until a call may be made; 0 for now."""
        return max((self._until - self._now()).total_seconds(), 0.0) if self._until else 0.0

    def note(self, answer: Answer) -> float | None:
        """Note what an answer says of the limit. Returns the pause if it refuses for that reason, else None."""
        pause_s = pause_of(answer, self._now())
        if pause_s is None:
            return None
        self._until = datetime.fromtimestamp(self._now().timestamp() + pause_s, self._now().tzinfo)
        return pause_s if answer.status >= 400 else None


class ForgeClient:
    """Calls below one repository. `root` makes the path of a repository from its name; the name may change."""

    def __init__(
        self,
        api_url: str,
        repo: str,
        root: Callable[[str], str],
        headers: Mapping[str, str],
        limit: RateLimit,
        *,
        private: bool,
        timeout_s: float,
    ) -> None:
        self._api_url = api_url
        self._repo = repo
        self._root = root
        self._headers = {"Accept": "application/json", "Content-Type": "application/json", **headers}
        self._limit = limit
        self._private = private
        self._timeout_s = timeout_s

    async def get(self, path: str, **query: str | int) -> Any:
        """Return the JSON at a path below the repository. Raises `ForgeError`."""
        return _json(await self._call("GET", path, query))

    async def send(self, method: str, path: str, body: Any = None) -> Any:
        """Send a change, and return the JSON of the answer. Raises `ForgeError`."""
        return _json(await self._call(method, path, {}, body))

    async def pages(self, path: str, **query: str | int) -> AsyncIterator[Any]:
        """Yield the rows of a list from all its pages. Raises `ForgeError`."""
        for page in range(1, PAGES_LIMIT + 1):
            answer = await self._call("GET", path, {**query, "page": page})
            rows = _json(answer)
            if not isinstance(rows, list):
                raise ForgeError("the answer is no list")
            for row in rows:
                yield row
            if not _has_next(answer) or not rows:
                return
        raise ForgeError(f"a list has more than {PAGES_LIMIT} pages")

    async def _call(self, method: str, path: str, query: Mapping[str, str | int], body: Any = None) -> Answer:
        answer = await self._once(method, self._url(path, query), body)
        if 300 <= answer.status < 400 and await self._has_other_name():
            answer = await self._once(method, self._url(path, query), body)
        if 300 <= answer.status < 400:
            raise IssueMoved("it was moved to another repository")
        return _accepted(answer)

    async def _has_other_name(self) -> bool:
        """Learn the present name of the repository. Returns whether it differs from the known one."""
        url = self._url("", {})
        for _ in range(_RENAMES):
            answer = await self._once("GET", url, None)
            if not 300 <= answer.status < 400:
                found = _json(_accepted(answer))
                name = found.get("full_name") or found.get("path_with_namespace") if isinstance(found, dict) else None
                if not isinstance(name, str) or name == self._repo:
                    return False
                self._repo = name
                return True
            target = urljoin(url, answer.headers.get("location", ""))
            if urlsplit(target)[:2] != urlsplit(url)[:2]:
                raise ForgeError("the forge redirects to another host, which is not followed", final=True)
            url = target
        raise ForgeError("the forge redirects in a circle")

    def _url(self, path: str, query: Mapping[str, str | int]) -> str:
        url = f"{self._api_url}{self._root(self._repo)}{path}"
        return f"{url}?{urlencode(query)}" if query else url

    async def _once(self, method: str, url: str, body: Any) -> Answer:
        pause_s = self._limit.remaining_s()
        if pause_s > 0:
            raise ForgeError("the forge asked for a pause", pause_s=pause_s)
        content = b"" if body is None else json.dumps(body).encode()
        call = Call(url, content, self._headers, method)
        try:
            answer = await exchange(call, self._private, self._timeout_s, ANSWER_BYTES)
        except BlockedAddress as refused:
            raise ForgeError(str(refused), final=True) from refused
        except TimeoutError as late:
            raise ForgeError(f"no answer within {self._timeout_s:g} s") from late
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError) as error:
            raise ForgeError(f"the call failed: {type(error).__name__}") from error
        pause_s = self._limit.note(answer) or 0.0
        if pause_s:
            raise ForgeError(f"HTTP {answer.status}: the limit of its rate", pause_s=pause_s)
        return answer


def pause_of(answer: Answer, now: datetime) -> float | None:
    """Return the pause that an answer asks for: a limit that is reached or was exceeded. None without one."""
    remaining = answer.headers.get("x-ratelimit-remaining", answer.headers.get("ratelimit-remaining"))
    text = answer.content[:2000].lower()
    limited = answer.status == 429 or (answer.status == 403 and any(words in text for words in _LIMITED))
    limited = limited or (answer.status in (403, 503) and answer.retry_after_s is not None)
    if not limited and remaining != "0":
        return None
    if answer.retry_after_s is not None:
        return min(max(answer.retry_after_s, 1.0), PAUSE_LIMIT_S)
    reset = answer.headers.get("x-ratelimit-reset", answer.headers.get("ratelimit-reset", ""))
    # With calls remaining it is another limit that was exceeded, whose end nobody tells.
    if remaining in ("0", None) and reset.isdecimal() and len(reset) < 12:
        return min(max(float(reset) - now.timestamp(), 1.0), PAUSE_LIMIT_S)
    return PAUSE_DEFAULT_S if limited else None


def _accepted(answer: Answer) -> Answer:
    """Return an answer of success. Raises `ForgeNotFound`, and `ForgeError` by its status."""
    status = answer.status
    if 200 <= status < 300:
        if len(answer.content) >= ANSWER_BYTES:
            raise ForgeError("the answer is too large")
        return answer
    if status in (404, 410):
        raise ForgeNotFound(f"HTTP {status}", gone=status == 410)
    if status == 401:
        raise ForgeError("HTTP 401: the token is not accepted")
    if status == 403:
        raise ForgeError("HTTP 403: the token has not the right to do it", refused=True)
    raise ForgeError(f"HTTP {status}", refused=status in (400, 422))


def _has_next(answer: Answer) -> bool:
    return bool(answer.headers.get("x-next-page")) or 'rel="next"' in answer.headers.get("link", "")


def _json(answer: Answer) -> Any:
    if not answer.content.strip():
        return None
    try:
        return json.loads(answer.content)
    except (ValueError, RecursionError) as error:
        raise ForgeError(f"HTTP {answer.status} without valid JSON") from error

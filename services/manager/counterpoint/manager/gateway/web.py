"""Web searches by SearXNG or a compatible service."""

import asyncio
import json
from urllib.parse import urlsplit

import httpx

from counterpoint.manager.gateway.calls import CallOutcome, WebSearchCall
from counterpoint.manager.gateway.ledger import CallUsage, dollars
from counterpoint.manager.gateway.models import UnknownCallOutcome
from counterpoint.proto.errors import ErrorCode, Permanent, Problem, Transient

COUNT_LIMIT = 20
_TITLE_CHARS, _URL_CHARS, _SNIPPET_CHARS = 300, 2_000, 1_000
_ANSWER_BYTES = 4 * 1024 * 1024


class WebSearchProvider:
    """Client of the SearXNG at `url`, which is its base URL or its `/search`."""

    def __init__(self, url: str) -> None:
        base = url.rstrip("/")
        self._url = base if base.endswith("/search") else f"{base}/search"
        self._host = urlsplit(url).hostname or url
        self._client = httpx.AsyncClient(timeout=None, follow_redirects=False, headers={"Accept-Encoding": "gzip"})

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def call(self, call: WebSearchCall, deadline: float) -> CallOutcome:
        """Return the pages found. `deadline` is a time of the event loop. Raises like `ModelProvider.call`."""
        remaining_s = deadline - asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(remaining_s):
                answer, content = await self._fetch(call.query)
        except TimeoutError as late:
            raise UnknownCallOutcome("the search did not respond in time") from late
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise Transient("the search is not reachable") from error
        except httpx.RequestError as error:
            raise UnknownCallOutcome(f"the connection to the search was lost: {type(error).__name__}") from error
        if answer.status_code == httpx.codes.TOO_MANY_REQUESTS or answer.is_server_error:
            raise Transient(f"the search returned HTTP {answer.status_code}")
        if answer.status_code != httpx.codes.OK:
            raise _refused(f"the search returned HTTP {answer.status_code}")
        if len(content) > _ANSWER_BYTES:
            raise _refused(f"the search returned more than {_ANSWER_BYTES} bytes")
        try:
            rows = json.loads(content)["results"]
            results = [_result(each) for each in rows if isinstance(each, dict)]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise _refused("the search returned something other than JSON results") from error
        pages = [page for page in results if page["url"].startswith(("http://", "https://"))]
        result = {"results": pages[: call.count], "engine": self._host}
        return CallOutcome(result, call.model, CallUsage(dollars(0)))

    async def _fetch(self, query: str) -> tuple[httpx.Response, bytes]:
        """Return the response and its content, cut shortly above the limit."""
        content = bytearray()
        async with self._client.stream("GET", self._url, params={"q": query, "format": "json"}) as answer:
            async for part in answer.aiter_bytes():
                content += part
                if len(content) > _ANSWER_BYTES:
                    break
        return answer, bytes(content)


def _result(row: dict[str, object]) -> dict[str, str]:
    def text(name: str, limit: int) -> str:
        return " ".join(str(row.get(name) or "").split())[:limit]

    return {
        "title": text("title", _TITLE_CHARS),
        "url": text("url", _URL_CHARS),
        "snippet": text("content", _SNIPPET_CHARS),
    }


def _refused(problem: str) -> Permanent:
    return Permanent(ErrorCode.REFUSED, (Problem(field="query", problem=problem),))

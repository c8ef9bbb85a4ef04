"""Searches of the web, by a SearXNG or whatever answers like one."""

import asyncio
from urllib.parse import urlsplit

import httpx

from counterpoint.manager.calls import Outcome, Search
from counterpoint.manager.ledger import Taken, dollars
from counterpoint.manager.provider import Unanswered
from counterpoint.proto.errors import Permanent, Problem, Transient

COUNT_LIMIT = 20
_TITLE_CHARS, _URL_CHARS, _SNIPPET_CHARS = 300, 2_000, 1_000
_ANSWER_BYTES = 4 * 1024 * 1024


class WebSearch:
    """Asks the SearXNG at `url`, its base or its `/search`."""

    def __init__(self, url: str) -> None:
        base = url.rstrip("/")
        self._url = base if base.endswith("/search") else f"{base}/search"
        self._host = urlsplit(url).hostname or url
        self._client = httpx.AsyncClient(timeout=None, follow_redirects=False)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def call(self, call: Search, deadline: float) -> Outcome:
        """The pages found; `deadline` by the clock of the loop. Raises like `Provider.call`."""
        left_s = deadline - asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(left_s):
                answer = await self._client.get(self._url, params={"q": call.query, "format": "json"})
        except TimeoutError as late:
            raise Unanswered("the search did not answer in time") from late
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise Transient("the search is not reachable") from error
        except httpx.TransportError as error:
            raise Unanswered(f"the search went away: {type(error).__name__}") from error
        if answer.status_code == httpx.codes.TOO_MANY_REQUESTS or answer.is_server_error:
            raise Transient(f"the search answered {answer.status_code}")
        if answer.status_code != httpx.codes.OK or len(answer.content) > _ANSWER_BYTES:
            raise _refused(f"the search answered {answer.status_code}, {len(answer.content)} bytes")
        try:
            found = answer.json()["results"]
            results = [_result(each) for each in found if isinstance(each, dict)]
        except (ValueError, KeyError, TypeError) as error:
            raise _refused("the search answered with something else than results in JSON") from error
        pages = [page for page in results if page["url"].startswith(("http://", "https://"))]
        said = {"results": pages[: call.count], "engine": self._host}
        return Outcome(said, call.model, Taken(dollars(0)))


def _result(found: dict[str, object]) -> dict[str, str]:
    def text(name: str, limit: int) -> str:
        return " ".join(str(found.get(name) or "").split())[:limit]

    return {
        "title": text("title", _TITLE_CHARS),
        "url": text("url", _URL_CHARS),
        "snippet": text("content", _SNIPPET_CHARS),
    }


def _refused(problem: str) -> Permanent:
    return Permanent("refused", (Problem(field="query", problem=problem),))

"""Memory is killed again and again while it changes the model: what is read is right meanwhile, and afterwards."""

import asyncio
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from counterpoint.local.stack import Stack

OLD, NEW = "minilm-l6-v2-int8", "minilm-l6-v2"
SECTIONS = 50
"""Chunks of a document."""
TOP = 15
READERS = 2
SETTLED_WITHIN_S = 240.0
ASKED_AGAIN_S = 10.0
"""A request that memory did not live to answer is made again after this long."""
WORDS = ("seal", "valve", "motor", "shaft", "filter", "sensor", "coupling", "bearing", "housing", "gauge", "relay")
QUESTIONS = tuple(f"Why does the {word} leak or fail at night?" for word in WORDS)

Ranking = tuple[tuple[str, float], ...]


def text(n: int) -> str:
    """A document of so many chunks, each of its own words."""
    choose = random.Random(n)
    return "\n\n".join(
        f"# Part {n}-{k}\n\nThe {choose.choice(WORDS)} of pump {n * SECTIONS + k} and its {choose.choice(WORDS)}"
        f" were {choose.choice(('worn', 'cracked', 'loose', 'dry', 'cold'))} in month {choose.randrange(12)}."
        for k in range(SECTIONS)
    )


@dataclass
class Readers:
    """Readers that check every answer: a ranking has to be one that is right now. A refusal is right while memory is
    away; everything else is an error."""

    http: httpx.AsyncClient
    project: str
    right: tuple[dict[str, Ranking], ...] = ()
    answered: int = 0
    away: list[tuple[float, float]] = field(default_factory=list)
    untold: list[tuple[float, float, str]] = field(default_factory=list)
    others: list[tuple[str, Ranking]] = field(default_factory=list)

    async def ranking(self, question: str, project: str, k: int = TOP) -> Ranking:
        """The nearest by meaning, each by its words, for ids differ between projects."""
        body = {"text": question, "project": project, "k": k, "vector_weight": 1.0}
        response = await self.http.post("/v1/search", json=body)
        response.raise_for_status()
        return tuple((item["text"], round(item["scores"]["cosine"], 5)) for item in response.json()["items"][:TOP])

    async def rankings(self, project: str) -> dict[str, Ranking]:
        """Return the ranking of each question."""
        return {question: await self.ranking(question, project) for question in QUESTIONS}

    async def read(self, choose: random.Random) -> None:
        """Ask, for ever, differently enough that few answers are kept ones."""
        while True:
            question, began, right = choose.choice(QUESTIONS), time.monotonic(), self.right
            try:
                told = await self.ranking(question, self.project, choose.randrange(TOP, 26))
            except httpx.HTTPError as error:
                self.untold.append((began, time.monotonic(), repr(error)))
                continue
            self.answered += 1
            await asyncio.sleep(0.02)
            if all(told != each[question] for each in (*right, *self.right)):
                self.others.append((question, told))

    @contextmanager
    def absence(self) -> Iterator[None]:
        """Memory is killed in the block, and is there again at its end."""
        began = time.monotonic()
        yield
        self.away.append((began, time.monotonic()))

    def judge(self, ranking: dict[str, Ranking] | None = None) -> None:
        """Assert that every answer besides the known ones is this ranking, which nobody could know before."""
        for question, told in self.others:
            assert ranking is not None
            assert told == ranking[question], (question, len(told), told[:2])
        self.others.clear()

    def failed(self) -> list[str]:
        """Reads that were not answered although memory was there all the time."""
        return [
            said
            for began, ended, said in self.untold
            if not any(began <= until and since <= ended for since, until in self.away)
        ]


async def retry_while_transient(http: httpx.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Post it as often as it takes."""
    while True:
        try:
            response = await http.post(path, json=body, timeout=ASKED_AGAIN_S)
        except httpx.TransportError:
            continue
        if response.status_code not in (502, 503, 504):
            assert response.is_success, response.text
            found: dict[str, Any] = response.json()
            return found
        await asyncio.sleep(0.1)


async def progress(http: httpx.AsyncClient) -> dict[str, Any]:
    while True:
        response = await http.get("/v1/reembed")
        if response.is_success:
            found: dict[str, Any] = response.json()
            return found
        await asyncio.sleep(0.1)


async def come_to(http: httpx.AsyncClient, vectors: int) -> dict[str, Any]:
    """Wait until `vectors` vectors are made, or all."""
    async with asyncio.timeout(SETTLED_WITHIN_S):
        while True:
            found = await progress(http)
            if found["vectors"] >= vectors or found["state"] == "ready":
                return found
            await asyncio.sleep(0.05)


@pytest.mark.timeout(1200)
@pytest.mark.slow
@pytest.mark.parametrize(("documents", "kills"), [pytest.param(3, 3, id="short"), pytest.param(60, 10, id="long")])
async def test_a_change_of_the_model_survives_kills_and_no_read_fails(project: str, documents: int, kills: int) -> None:
    with tempfile.TemporaryDirectory(prefix="counterpoint-") as folder:
        stack = Stack(Path(folder) / "data", http_port=0)
        await stack.start()
        headers = {"Authorization": f"Bearer {stack.endpoints.token}"}
        try:
            async with httpx.AsyncClient(base_url=stack.endpoints.http, headers=headers, timeout=60) as http:
                await _changed(stack, Readers(http, project), documents, kills)
        finally:
            await stack.stop()


async def _changed(stack: Stack, reading: Readers, documents: int, kills: int) -> None:
    http, project, choose = reading.http, reading.project, random.Random(kills)

    async def ingested(into: str, first: int, last: int) -> None:
        for n in range(first, last):
            await retry_while_transient(http, "/v1/documents", {"source": f"{n}.md", "text": text(n), "project": into})

    await ingested(project, 0, documents)
    old = await reading.rankings(project)
    assert all(len(ranking) == TOP for ranking in old.values())
    reading.right = (old,)
    chunks = documents * SECTIONS
    async with asyncio.TaskGroup() as group:
        others = [group.create_task(reading.read(random.Random(n))) for n in range(READERS)]
        assert (await retry_while_transient(http, "/v1/reembed", {"act": "begin", "model": NEW}))["other"] == NEW
        others.append(group.create_task(ingested(f"{project}-b", 0, 2)))
        for at in sorted(choose.randrange(chunks * 19 // 20) for _ in range(kills)):
            await come_to(http, at)
            with reading.absence():
                stack.kill("memory")
                await stack.ready("memory")
        await others.pop()
        found = await come_to(http, chunks + 2 * SECTIONS)
        assert (found["active"], found["state"], found["refused"]) == (OLD, "ready", 0)
        assert found["vectors"] == found["of"] == chunks + 2 * SECTIONS
        reading.judge()
        assert (await retry_while_transient(http, "/v1/reembed", {"act": "switch"}))["active"] == NEW
        new = await reading.rankings(project)
        reading.right = (new,)
        reading.judge(new)
        await ingested(f"{project}-fresh", 0, documents)
        fresh = await reading.rankings(f"{project}-fresh")
        reading.judge()
        reading.right = (old, new)
        assert (await retry_while_transient(http, "/v1/reembed", {"act": "rollback"}))["active"] == OLD
        assert await reading.rankings(project) == old
        for reader in others:
            reader.cancel()
    assert fresh == new != old
    assert reading.failed() == []
    reading.judge()
    assert reading.answered > 10
    assert len(reading.away) == kills

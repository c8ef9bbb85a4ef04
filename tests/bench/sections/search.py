"""Filtered search in a hundred projects: whether it finds what an exact search finds, and what the service adds."""

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

from bench.knowledge import names, question
from bench.measure import Measure, Report, p50, p99, say
from bench.sections.size import Size
from bench.small import Small, small

from counterpoint.memory.retrieval.candidates import Scope
from counterpoint.memory.retrieval.fuse import fixed
from counterpoint.memory.retrieval.search import search
from counterpoint.memory.search import Search
from counterpoint.proto.memory import VectorSearch

PROJECTS = 100
K = 10
SEEDS = 1_000
KINDS = 10
"""One item in so many has the field that is filtered by."""
STEP = 20_000
TURN = 20
"""So many are asked of one before the other has its turn."""

_SEEDS = """
CREATE TABLE IF NOT EXISTS seeds (n int PRIMARY KEY, said text, embedding vector(384), part vector(384))
"""
_SEED = """
INSERT INTO seeds SELECT n, said, e::real[]::vector, h::real[]::vector
FROM unnest($1::int[], $2::text[], $3::text[], $4::text[]) AS given (n, said, e, h)
"""
_MADE = """
SELECT i, 'bench-' || i % $3 AS project, 'a-' || i AS id,
       CASE WHEN i / $3 % $5 = 0 THEN 'failed' ELSE 'ok' END AS outcome,
       first.said || ' ' || second.said AS said, l2_normalize(first.embedding + second.part) AS embedding
FROM generate_series($1::int, $2::int) AS i
JOIN seeds first ON first.n = (i::bigint * 7919) % $4 JOIN seeds second ON second.n = (i::bigint / $4 * 31 + i) % $4
"""
_RECORDS = f"""
INSERT INTO records (project, store, id, version, seq, author, label, integrity, body, sha256, commit_id)
SELECT project, 'attempts', id, 1, i + 1, 'developer', 1, 2,
       jsonb_build_object('attempt_id', id, 'tried', said, 'outcome', outcome), sha256(id::bytea), gen_random_uuid()
FROM ({_MADE}) AS made
"""
_VECTORS = f"""
INSERT INTO vectors (project, store, id, version, source, label, model, lexemes, embedding)
SELECT project, 'attempts', id, 1, id, 1, $6, to_tsvector('english', said), embedding FROM ({_MADE}) AS made
"""
_BODIES = "SELECT id, body FROM records WHERE project = $1 AND store = 'attempts' AND id = ANY ($2)"
_EXACT = """
SELECT cosine FROM (
    SELECT 1 - (v.embedding <=> $3::real[]::vector) AS cosine FROM vectors v
    JOIN records r USING (project, store, id)
    WHERE v.project = $1 AND v.store = 'attempts' AND ($2::text IS NULL OR r.body ->> 'outcome' = $2) OFFSET 0) AS every
ORDER BY cosine DESC LIMIT $4
"""


def questions() -> Iterator[str]:
    """What to ask, never the same twice."""
    asked = names(SEEDS)
    random.Random(7).shuffle(asked)
    return (question(f"{first} or {second}") for first, second in permutations(asked, 2))


async def fill(place: Small, search_by: Search, items: int) -> None:
    """So many attempts in a hundred projects: each a mixture of two texts, its vector of theirs."""
    said = [f"The {name} service was restarted and listened on its port again." for name in names(SEEDS)]
    vectors = await search_by.embed_texts(said)
    await place.record.execute(_SEEDS)
    await place.record.execute(
        _SEED,
        list(range(SEEDS)),
        said,
        *([f"{{{','.join(map(str, (v * w).tolist()))}}}" for v in vectors] for w in (1, 0.6)),
    )
    fixed = (PROJECTS, SEEDS, KINDS)
    for start in range(0, items, STEP):
        end = min(start + STEP, items) - 1
        await place.record.execute(_RECORDS, start, end, *fixed)
        await place.record.execute(_VECTORS, start, end, *fixed, search_by.model_id)
        if items > STEP:
            say(f"{end + 1} items")
    await place.record.execute(
        "INSERT INTO projects (project, last_seq) SELECT 'bench-' || n, $1 FROM generate_series(0, $2::int - 1) AS n",
        items + 1,
        PROJECTS,
    )
    await place.record.execute("VACUUM ANALYZE records, vectors, meanings, postings, lexicon")


@dataclass
class _Asked:
    """What came of some questions: how long each took, in ms, and the share of the best that each answer has."""

    took: list[float]
    recall: list[float]


class _Asking:
    """Questions about one filled place. No text is asked twice, for what was asked before may be remembered."""

    def __init__(self, place: Small, search_by: Search) -> None:
        self._place = place
        self._search = search_by
        self._choose = random.Random(7)
        self._questions = questions()

    def texts(self, count: int) -> list[tuple[str, str]]:
        """Projects, and what to ask in each."""
        return [(f"bench-{self._choose.randrange(PROJECTS)}", next(self._questions)) for _ in range(count)]

    async def ours(self, asked: Sequence[tuple[str, str]], outcome: str | None = None) -> _Asked:
        """Through the service."""
        where = {"outcome": outcome} if outcome else {}
        done = _Asked([], [])
        for project, text in asked:
            query = VectorSearch(store="attempts", text=text, k=K, where=where)
            memory = self._place.router.memory(project, None)
            began = time.perf_counter()
            (found,) = await memory.query(query)
            done.took.append((time.perf_counter() - began) * 1000)
            got = [(each.scores or {})["cosine"] for each in found.items]
            done.recall.append(await self._recall(project, text, outcome, got))
        return done

    async def raw(self, asked: Sequence[tuple[str, str]]) -> list[float]:
        """The same model, statement and bodies without the service."""
        took, record = [], self._place.record
        for project, text in asked:
            scope = Scope(project, ("attempts",), self._search.model_id, 2)
            began = time.perf_counter()
            (vector,) = await self._search.embed_texts([text])
            found = await search(record, scope, text, vector, K, fixed(1))
            await record.fetch(_BODIES, project, [hit.id for hit in found.hits])
            took.append((time.perf_counter() - began) * 1000)
        return took

    async def rpc(self, count: int) -> list[float]:
        """A request that asks for nothing."""
        took = []
        for _ in range(count):
            memory = self._place.router.memory("bench-0", None)
            began = time.perf_counter()
            await memory.query()
            took.append((time.perf_counter() - began) * 1000)
        return took

    async def _recall(self, project: str, text: str, outcome: str | None, got: Sequence[float]) -> float:
        (vector,) = await self._search.embed_texts([text])
        best: list[Any] = await self._place.record.fetch(_EXACT, project, outcome, vector.tolist(), K)
        worst = best[-1]["cosine"] - 1e-5
        return sum(cosine >= worst for cosine in got) / len(best)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


async def measured(folder: Path, size: Size, report: Report) -> None:
    """The rows about filtered search, for each count of items."""
    for items in size.searched:
        say(f"{items} items in {PROJECTS} projects")
        search_by = Search(None, None)
        took, beside, late, recall, narrow = [], [], [], [], []
        async with small(folder / f"stack-{items}") as place:
            await fill(place, search_by, items)
            asking = _Asking(place, search_by)
            for warm in (asking.ours, asking.raw):
                await warm(asking.texts(10))
            for _ in range(size.runs):
                report.note_load()
                ours, raw, rpc = _Asked([], []), [], []
                for at in range(0, size.samples, TURN):
                    count = min(TURN, size.samples - at)
                    some = await asking.ours(asking.texts(count))
                    ours.took += some.took
                    ours.recall += some.recall
                    raw += await asking.raw(asking.texts(count))
                    rpc += await asking.rpc(count)
                took.append(max(p50(ours.took) - p50(rpc), 0.01))
                late.append(p99(ours.took))
                recall.append(_mean(ours.recall))
                beside.append(p50(raw))
                narrow.append(_mean((await asking.ours(asking.texts(size.samples // 4 + 1), "failed")).recall))
        name = f"search, {items} items in {PROJECTS} projects, k = {K}"
        report.measures += [
            Measure(f"{name}: recall against an exact search", "", tuple(recall), 0.99, floor=True),
            Measure(f"{name}: p50 less one empty RPC / the same SQL raw", "ms", tuple(took), 1.5, tuple(beside)),
            Measure(f"{name}: p99", "ms", tuple(late), 25 if items == 100_000 else None),
            Measure(f"{name}, one in {KINDS} by a field: recall", "", tuple(narrow), 0.99, floor=True),
        ]

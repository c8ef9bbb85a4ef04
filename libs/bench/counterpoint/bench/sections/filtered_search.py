"""Filtered search in a hundred projects: recall against an exact search, and the time that the service adds."""

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

from counterpoint.bench.bench_stack import BenchStack, bench_stack
from counterpoint.bench.report import BenchReport, Measurement, p50, p99, progress
from counterpoint.bench.sections.size import SectionSize
from counterpoint.bench.service_documents import port_question, service_names
from counterpoint.memory.search.candidates import SearchScope
from counterpoint.memory.search.fusion import fixed
from counterpoint.memory.search.hybrid import search
from counterpoint.memory.search.vectors import SearchEngine
from counterpoint.proto.memory import VectorSearch

PROJECTS = 100
K = 10
SEEDS = 1_000
KINDS = 10
"""Items per item that matches the field filter."""
STEP = 20_000
INTERLEAVE = 20
"""Queries in a row before the other side has its turn."""

_SEEDS = """
CREATE TABLE IF NOT EXISTS seeds (n int PRIMARY KEY, content text, embedding vector(384), part vector(384))
"""
_SEED = """
INSERT INTO seeds SELECT n, content, e::real[]::vector, h::real[]::vector
FROM unnest($1::int[], $2::text[], $3::text[], $4::text[]) AS rows (n, content, e, h)
"""
_MADE = """
SELECT i, 'bench-' || i % $3 AS project, 'a-' || i AS id,
       CASE WHEN i / $3 % $5 = 0 THEN 'failed' ELSE 'ok' END AS outcome,
       first.content || ' ' || second.content AS content, l2_normalize(first.embedding + second.part) AS embedding
FROM generate_series($1::int, $2::int) AS i
JOIN seeds first ON first.n = (i::bigint * 7919) % $4 JOIN seeds second ON second.n = (i::bigint / $4 * 31 + i) % $4
"""
_RECORDS = f"""
INSERT INTO records (project, store, id, version, seq, author, label, integrity, body, sha256, commit_id)
SELECT project, 'attempts', id, 1, i + 1, 'developer', 1, 2,
       jsonb_build_object('attempt_id', id, 'tried', content, 'outcome', outcome), sha256(id::bytea), gen_random_uuid()
FROM ({_MADE}) AS made
"""
_VECTORS = f"""
INSERT INTO vectors (project, store, id, version, source, label, model, lexemes, embedding)
SELECT project, 'attempts', id, 1, id, 1, $6, to_tsvector('english', content), embedding FROM ({_MADE}) AS made
"""
_BODIES = "SELECT id, body FROM records WHERE project = $1 AND store = 'attempts' AND id = ANY ($2)"
_EXACT = """
SELECT cosine FROM (
    SELECT 1 - (v.embedding <=> $3::real[]::vector) AS cosine FROM vectors v
    JOIN records r USING (project, store, id)
    WHERE v.project = $1 AND v.store = 'attempts' AND ($2::text IS NULL OR r.body ->> 'outcome' = $2) OFFSET 0) AS every
ORDER BY cosine DESC LIMIT $4
"""


def distinct_questions() -> Iterator[str]:
    """Yield questions, none of them twice."""
    services = service_names(SEEDS)
    random.Random(7).shuffle(services)
    return (port_question(f"{first} or {second}") for first, second in permutations(services, 2))


async def fill_attempts(bench: BenchStack, search_model: SearchEngine, items: int) -> None:
    """Insert `items` attempts into a hundred projects. Each mixes two texts, and its vector mixes theirs."""
    texts = [f"The {name} service was restarted and listened on its port again." for name in service_names(SEEDS)]
    vectors = await search_model.embed_texts(texts)
    await bench.postgres.execute(_SEEDS)
    await bench.postgres.execute(
        _SEED,
        list(range(SEEDS)),
        texts,
        *([f"{{{','.join(map(str, (v * w).tolist()))}}}" for v in vectors] for w in (1, 0.6)),
    )
    amounts = (PROJECTS, SEEDS, KINDS)
    for start in range(0, items, STEP):
        end = min(start + STEP, items) - 1
        await bench.postgres.execute(_RECORDS, start, end, *amounts)
        await bench.postgres.execute(_VECTORS, start, end, *amounts, search_model.model_id)
        if items > STEP:
            progress(f"{end + 1} items")
    await bench.postgres.execute(
        "INSERT INTO projects (project, last_seq) SELECT 'bench-' || n, $1 FROM generate_series(0, $2::int - 1) AS n",
        items + 1,
        PROJECTS,
    )
    await bench.postgres.execute("VACUUM ANALYZE records, vectors, meanings, postings, lexicon")


@dataclass
class _SearchRun:
    """Durations in milliseconds, and the share of the exact result in each answer."""

    took: list[float]
    recall: list[float]


class _Searches:
    """Searches in one filled database. No text is repeated, because answers are cached."""

    def __init__(self, bench: BenchStack, search_model: SearchEngine) -> None:
        self._place = bench
        self._search = search_model
        self._draw = random.Random(7)
        self._questions = distinct_questions()

    def texts(self, count: int) -> list[tuple[str, str]]:
        """Return projects with a question for each."""
        return [(f"bench-{self._draw.randrange(PROJECTS)}", next(self._questions)) for _ in range(count)]

    async def service(self, questions: Sequence[tuple[str, str]], outcome: str | None = None) -> _SearchRun:
        """Search through the service."""
        where = {"outcome": outcome} if outcome else {}
        run = _SearchRun([], [])
        for project, text in questions:
            query = VectorSearch(store="attempts", text=text, k=K, where=where)
            memory = self._place.router.memory(project, None)
            began = time.perf_counter()
            (found,) = await memory.query(query)
            run.took.append((time.perf_counter() - began) * 1000)
            cosines = [(each.scores or {})["cosine"] for each in found.items]
            run.recall.append(await self._recall(project, text, outcome, cosines))
        return run

    async def raw(self, questions: Sequence[tuple[str, str]]) -> list[float]:
        """Run the same model and statements without the service. Return milliseconds."""
        took, record = [], self._place.postgres
        for project, text in questions:
            scope = SearchScope(project, ("attempts",), self._search.model_id, 2)
            began = time.perf_counter()
            (vector,) = await self._search.embed_texts([text])
            found = await search(record, scope, text, vector, K, fixed(1))
            await record.fetch(_BODIES, project, [hit.id for hit in found.hits])
            took.append((time.perf_counter() - began) * 1000)
        return took

    async def rpc(self, count: int) -> list[float]:
        """Send empty requests. Return milliseconds."""
        took = []
        for _ in range(count):
            memory = self._place.router.memory("bench-0", None)
            began = time.perf_counter()
            await memory.query()
            took.append((time.perf_counter() - began) * 1000)
        return took

    async def _recall(self, project: str, text: str, outcome: str | None, cosines: Sequence[float]) -> float:
        (vector,) = await self._search.embed_texts([text])
        best: list[Any] = await self._place.postgres.fetch(_EXACT, project, outcome, vector.tolist(), K)
        worst: float = best[-1]["cosine"] - 1e-5
        return sum(cosine >= worst for cosine in cosines) / len(best)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


async def measure(folder: Path, size: SectionSize, report: BenchReport) -> None:
    """Measure filtered search for each item count."""
    for items in size.searched:
        progress(f"{items} items in {PROJECTS} projects")
        search_model = SearchEngine(None, None)
        took, beside, late, recall, narrow = [], [], [], [], []
        async with bench_stack(folder / f"stack-{items}") as bench:
            await fill_attempts(bench, search_model, items)
            searches = _Searches(bench, search_model)
            for warm in (searches.service, searches.raw):
                await warm(searches.texts(10))
            for _ in range(size.runs):
                report.note_load()
                ours, raw, rpc = _SearchRun([], []), [], []
                for at in range(0, size.samples, INTERLEAVE):
                    count = min(INTERLEAVE, size.samples - at)
                    part = await searches.service(searches.texts(count))
                    ours.took += part.took
                    ours.recall += part.recall
                    raw += await searches.raw(searches.texts(count))
                    rpc += await searches.rpc(count)
                took.append(max(p50(ours.took) - p50(rpc), 0.01))
                late.append(p99(ours.took))
                recall.append(_mean(ours.recall))
                beside.append(p50(raw))
                narrow.append(_mean((await searches.service(searches.texts(size.samples // 4 + 1), "failed")).recall))
        name = f"search, {items} items in {PROJECTS} projects, k = {K}"
        report.measures += [
            Measurement(f"{name}: recall against an exact search", "", tuple(recall), 0.99, at_least=True),
            Measurement(f"{name}: p50 less one empty RPC / the same SQL raw", "ms", tuple(took), 1.5, tuple(beside)),
            Measurement(f"{name}: p99", "ms", tuple(late), 25 if items == 100_000 else None),
            Measurement(f"{name}, one in {KINDS} by a field: recall", "", tuple(narrow), 0.99, at_least=True),
        ]

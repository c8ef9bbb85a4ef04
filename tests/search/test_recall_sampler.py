"""The recall that is seen: of an index that was made worse on purpose it is below one, of an exact search it is one."""

import asyncio
import random
from collections.abc import AsyncIterator

import numpy as np
import pytest
from memory_service.house import House, running_house

from counterpoint.guard.policy import policy
from counterpoint.memory.embedding.model import DIMENSIONS
from counterpoint.memory.query.executor import QueryExecutor
from counterpoint.memory.query.recall_sampler import RECALL, WINDOW, Ids, RecallSampler, recall
from counterpoint.memory.search.vectors import SearchEngine
from counterpoint.proto.errors import Away
from counterpoint.proto.memory import VectorSearch

ROWS = 2000
_VECTORS = """
INSERT INTO vectors (project, store, id, version, source, label, model, lexemes, embedding)
SELECT $1, 'attempts', id, 1, 'source', 1, $2, to_tsvector('english', 'away'), embedding::vector
FROM unnest($3::text[], $4::text[]) AS given (id, embedding)
"""
_RECORDS = """
INSERT INTO records (project, store, id, version, seq, author, label, integrity, sha256, schema_version,
    commit_id, body)
SELECT $1, 'attempts', 'r' || n, 1, n, 'developer', 1, 1, 'x', 1, gen_random_uuid(),
    jsonb_build_object('state', CASE WHEN n % 2 = 0 THEN 'even' END)
FROM generate_series(0, $2 - 1) AS n
"""
A, B, C = ("orders", "a"), ("orders", "b"), ("orders", "c")


@pytest.fixture(scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with running_house(tmp_path_factory.mktemp("sampled")) as house:
        yield house


async def fill_vectors(house: House, project: str, model: str) -> None:
    vectors = np.random.default_rng(5).normal(size=(ROWS, DIMENSIONS)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    async with house.superuser() as record:
        await record.execute("SELECT set_config('counterpoint.project', $1, false)", project)
        await record.execute(_RECORDS, project, ROWS)
        texts = [str(vector.tolist()) for vector in vectors]
        await record.execute(_VECTORS, project, model, [f"r{n}" for n in range(ROWS)], texts)
        await record.execute("ANALYZE vectors, meanings")


def queries(house: House, search: SearchEngine) -> QueryExecutor:
    """Every search that may be sampled is."""
    return QueryExecutor(
        house.database, policy(), search, house.queries._as_of, house.queries._influence, house.tiers,
        house.queries._auditor, sample_share=1,
    )  # fmt: skip


@pytest.mark.parametrize("plan", ["indexed", "exact"])
async def test_the_recall_of_a_worse_index_is_below_one(house: House, project: str, plan: str) -> None:
    worse = SearchEngine(None, None, exact_rows=100 if plan == "indexed" else ROWS, ef_search=1)
    await fill_vectors(house, project, worse.model_id)
    await house.index(project)
    asked = queries(house, worse)
    grant, _ = await house.authority.authorise("router", house.standing(project))
    RECALL.clear()
    where = {} if plan == "indexed" else {"state": "even"}
    for n in range(20):
        query = VectorSearch(store="attempts", text=f"the database {n} is away", where=where, k=10)
        (found,) = await asked.answer(grant, (query,))
        assert (found.plan, len(found.items)) == (plan, 10)
        await asked.sampler.sampled()
    seen = RECALL.labels("attempts", plan)._value.get()
    assert 0 < seen < 1 if plan == "indexed" else seen == 1, seen


def test_recall_is_the_share_of_the_exact_answer() -> None:
    assert recall(frozenset({A, B}), frozenset({A, C})) == 0.5
    assert recall(frozenset({A}), frozenset()) == 1
    assert recall(frozenset(), frozenset({A})) == 0


async def test_the_share_is_kept_and_nothing_runs_while_it_is_busy_or_another_runs() -> None:
    ran, go, busy = [0], asyncio.Event(), [False]

    async def compare() -> tuple[Ids, Ids]:
        ran[0] += 1
        await go.wait()
        return frozenset({A}), frozenset({A, B})

    sampler = RecallSampler(0.1, lambda: busy[0], random.Random(3))
    for _ in range(1000):
        sampler.offer("chunks", "share", compare)
    await asyncio.sleep(0)
    assert ran == [1]
    go.set()
    await sampler.sampled()
    for _ in range(1000):
        sampler.offer("chunks", "share", compare)
        await sampler.sampled()
    assert 60 < ran[0] < 140
    assert len(sampler._samples["chunks", "share"]) == min(ran[0], WINDOW)
    assert RECALL.labels("chunks", "share")._value.get() == 0.5
    (known,) = sampler.means()
    assert (known.store, known.plan, known.ratio, known.samples) == ("chunks", "share", 0.5, min(ran[0], WINDOW))
    busy[0], before = True, ran[0]
    for _ in range(1000):
        sampler.offer("chunks", "share", compare)
        await sampler.sampled()
    assert ran[0] == before


async def test_a_comparison_that_fails_is_no_sample() -> None:
    async def compare() -> tuple[Ids, Ids]:
        raise Away("the database is away")

    sampler = RecallSampler(1, lambda: False)
    sampler.offer("chunks", "fails", compare)
    await sampler.sampled()
    assert not sampler._samples

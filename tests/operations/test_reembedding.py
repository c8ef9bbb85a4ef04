"""Changing the model of embeddings: every answer is by one model, and after the change that of a fresh ingest."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from memory_service.databases import fresh_database, template_server
from memory_service.house import House
from memory_service.leaves import leaf_bodies

from counterpoint.memory.commit.committer import Committer
from counterpoint.memory.commit.pipeline import EmbeddingPipeline
from counterpoint.memory.embedding.model import EmbeddingModel, TextContext, Vectors
from counterpoint.memory.record.plan import CommitPlan
from counterpoint.memory.search.index import index_projects
from counterpoint.memory.search.model_registry import ModelName, OtherModel
from counterpoint.proto.errors import Away, Denied, Permanent, Transient
from counterpoint.proto.ingest import Document, IngestReply, IngestRequest
from counterpoint.proto.memory import CommitReply, Erase, HybridSearch, QueryReply, Reembed, VectorSearch, Write

FIRST, SECOND, WIDE = "first@48", "second@48", "wide@2500"
QUESTION = "pump seal"


class WordModel:
    """A model of its own: each word has a direction that no other gives it. `secret` is what it may not be told."""

    is_remote = False

    def __init__(self, model_id: str, secret: int | None = None) -> None:
        self.model_id = model_id
        self.dimensions = int(model_id.rpartition("@")[2])
        self.asked: list[str] = []
        self.before: Any = None
        self._secret = secret

    async def embed(self, texts: Sequence[str], context: TextContext | None = None) -> Vectors:
        if self.before is not None:
            await self.before(texts)
        await asyncio.sleep(0)
        if self._secret is not None and context is not None and context.label >= self._secret:
            raise Denied("label", "a clearance")
        self.asked += texts
        return np.stack([self.vector(text) for text in texts]) if texts else np.empty((0, self.dimensions), np.float32)

    def vector(self, text: str) -> Vectors:
        """Return the vector of a text."""
        made = np.zeros(self.dimensions)
        for word in text.lower().split():
            seed = hashlib.sha256(f"{self.model_id} {word}".encode()).digest()[:4]
            made += np.random.default_rng(int.from_bytes(seed, "big")).normal(size=self.dimensions)
        return np.asarray(made / np.linalg.norm(made), np.float32)


@asynccontextmanager
async def run_house(urls: Any, first: EmbeddingModel, made: dict[str, EmbeddingModel]) -> AsyncIterator[House]:
    house = House(urls)
    house.search.use(first, None)

    def make(named: ModelName) -> EmbeddingModel:
        known = made.get(f"{named.name}@{named.dimensions}") or made.get(named.name)
        if known is None:
            raise Permanent("invalid")
        return known

    house.make = make
    await house.open()
    await house.models.begin()
    filling = asyncio.create_task(house.reembedding.run())
    try:
        yield house
    finally:
        filling.cancel()
        await asyncio.gather(filling, return_exceptions=True)
        await house.close()


@pytest.fixture
def models() -> dict[str, EmbeddingModel]:
    return {name: WordModel(name) for name in (FIRST, SECOND, WIDE)}


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Any]:
    async with template_server(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
async def urls(server: Any) -> Any:
    return await fresh_database(server)


@pytest.fixture
async def house(urls: Any, models: dict[str, EmbeddingModel]) -> AsyncIterator[House]:
    async with run_house(urls, models[FIRST], models) as made:
        yield made


def documents(count: int, start: int = 0) -> tuple[Document, ...]:
    return tuple(
        Document(
            source=f"{n}.md", text="\n\n".join(f"# Part {k}\n\nThe seal of pump {n * k} leaks {k}." for k in range(5))
        )
        for n in range(start, start + count)
    )


async def ingest(house: House, project: str, given: tuple[Document, ...]) -> None:
    request = IngestRequest(origin=house.standing(project, principal="administrator"), documents=given)
    raw = await house.door.ingest("router", request.model_dump_json().encode())
    reply = IngestReply.model_validate_json(raw)
    assert reply.refusal is None, reply.refusal


async def search_hits(house: House, project: str, **more: Any) -> list[Any]:
    """Id and cosine of what is found, best first."""
    query = HybridSearch(store="chunks", text=QUESTION, k=20, **more)
    items = (await house.answer("router", house.standing(project), query)).items
    return [(item.id, round((item.scores or {})["cosine"], 5)) for item in items]


async def request_reembed(house: House, act: str, model: str | None = None, **more: Any) -> QueryReply:
    origin = house.standing("default", principal="administrator")
    return await house.query("router", origin, Reembed(act=act, model=model, **more))  # type: ignore[arg-type]


async def report_of(house: House, act: str = "status", model: str | None = None, **more: Any) -> dict[str, Any]:
    reply = await request_reembed(house, act, model, **more)
    assert reply.refusal is None, reply.refusal
    return reply.found[0].report or {}


async def complete(house: House) -> dict[str, Any]:
    async with asyncio.timeout(120):
        while (report := await report_of(house))["state"] == "filling":  # noqa: ASYNC110 - another task fills
            await asyncio.sleep(0.01)
    return report


async def meanings(house: House, project: str) -> dict[str, int]:
    """Return the number of vectors of each model."""
    async with house.superuser() as connection:
        rows = await connection.fetch(
            "SELECT model, count(*) AS n FROM meanings WHERE project = $1 GROUP BY model", project
        )
    return {row["model"]: row["n"] for row in rows}


async def wait_until_deleted(house: House, project: str, model: str) -> None:
    async with asyncio.timeout(120):
        while model in await meanings(house, project):  # noqa: ASYNC110 - another task forgets
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("model", [SECOND, WIDE])
async def test_a_model_is_changed_and_changed_back_and_answers_are_those_of_a_fresh_ingest(
    house: House, project: str, models: dict[str, EmbeddingModel], model: str
) -> None:
    await ingest(house, project, documents(6))
    await ingest(house, "shared", documents(2, 50))
    before = await search_hits(house, project)
    assert (await report_of(house, "begin", f"{model}"))["other"] == model
    await ingest(house, project, documents(2, 6))
    report = await complete(house)
    assert (report["state"], report["vectors"], report["of"], report["refused"]) == ("ready", 50, 50, 0)
    grown = await search_hits(house, project)
    assert (await report_of(house, "switch"))["active"] == model
    switched = await search_hits(house, project)
    fresh = f"{project}-fresh"
    await ingest(house, fresh, documents(8))
    assert [cosine for _, cosine in await search_hits(house, fresh)] == [cosine for _, cosine in switched]
    assert await by_meaning(house, fresh) == await by_meaning(house, project) != []
    assert switched != grown != before
    assert (await report_of(house))["state"] == "kept"
    await ingest(house, project, documents(1, 8))
    assert (await report_of(house, "rollback"))["active"] == FIRST
    assert await meanings(house, project) == {FIRST: 45, model: 45}
    again = f"{project}-again"
    await ingest(house, again, documents(9))
    assert await by_meaning(house, again) == await by_meaning(house, project)
    assert (await report_of(house, "switch"))["active"] == model
    assert (await report_of(house, "drop"))["state"] == "none"
    await wait_until_deleted(house, project, FIRST)
    assert await by_meaning(house, again) == await by_meaning(house, project)
    report = await house.verify("default")
    assert report["ok"], report["broken"]


async def by_meaning(house: House, project: str) -> list[Any]:
    query = VectorSearch(store="chunks", text=QUESTION, k=30)
    items = (await house.answer("router", house.standing(project), query)).items
    return [(item.body["source"], item.body["text"], round((item.scores or {})["cosine"], 5)) for item in items]


@pytest.mark.slow
async def test_every_answer_meanwhile_is_whole_and_of_one_model(
    house: House, project: str, models: dict[str, EmbeddingModel]
) -> None:
    await ingest(house, project, documents(7))
    texts = {}
    async with house.superuser() as connection:
        sql = "SELECT id, body ->> 'text' AS text FROM records WHERE project = $1 AND store = 'chunks'"
        texts = {row["id"]: row["text"] for row in await connection.fetch(sql, project)}
    wanted = [f"seal of pump {n}" for n in range(4)]

    def ranking(model: EmbeddingModel, text: str) -> tuple[Any, ...]:
        assert isinstance(model, WordModel)
        by = {key: round(float(model.vector(said) @ model.vector(text)), 4) for key, said in texts.items()}
        return tuple(sorted(by.values(), reverse=True)[:30])

    rankings = {(text, name): ranking(model, text) for text in wanted for name, model in models.items()}
    seen: set[str] = set()
    over = asyncio.Event()

    async def read(n: int) -> int:
        read = 0
        while not over.is_set():
            query = VectorSearch(store="chunks", text=wanted[(n + read) % 4], k=30)
            items = (await house.answer("router", house.standing(project), query)).items
            # A cached answer takes no turn of the event loop.
            await asyncio.sleep(0.005)
            if n:
                house.answers._searches._l1.clear()
            told = np.array([(item.scores or {})["cosine"] for item in items])
            fits = [
                name for name in models if len(told) == 30 and np.allclose(told, rankings[query.text, name], atol=2e-4)
            ]
            assert len(fits) == 1, (query.text, told[:3])
            seen.add(fits[0])
            read += 1
        return read

    async def write() -> None:
        n = 100
        while not over.is_set():
            await ingest(house, f"{project}-b", documents(1, n))
            n += 1

    async with asyncio.TaskGroup() as group:
        readers = [group.create_task(read(n)) for n in range(3)]
        group.create_task(write())
        for model in (SECOND, WIDE):
            await report_of(house, "begin", model)
            await complete(house)
            await report_of(house, "switch")
            await report_of(house, "rollback")
            await report_of(house, "switch")
            await report_of(house, "drop")
        over.set()
    assert seen == set(models)
    assert sum(reader.result() for reader in readers) > 30


async def test_texts_embedded_before_the_change_are_embedded_again(
    house: House, project: str, models: dict[str, EmbeddingModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    await ingest(house, project, documents(2))
    apply, changed = Committer.apply, False

    async def late(self: Committer, step: CommitPlan) -> CommitReply:
        nonlocal changed
        if step.vectors and not changed:
            changed = True
            assert list(step.vectors[0].embeddings) == [FIRST]
            await report_of(house, "begin", SECOND)
            await complete(house)
            await report_of(house, "switch")
        return await apply(self, step)

    monkeypatch.setattr(Committer, "apply", late)
    await ingest(house, project, documents(1, 2))
    monkeypatch.undo()
    assert changed
    assert await meanings(house, project) == {FIRST: 15, SECOND: 15}
    assert len(await search_hits(house, project)) == 15


async def test_a_model_that_goes_while_a_commit_asks_it_is_not_taken_for_one_that_fails(
    house: House, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ingest(house, project, documents(2))
    await report_of(house, "begin", SECOND)
    await complete(house)
    of, gone = EmbeddingPipeline.of, False

    async def late(
        self: EmbeddingPipeline, project: str, texts: Sequence[str], *args: Any, model: str | None = None
    ) -> Any:
        nonlocal gone
        if texts and model == SECOND and not gone:  # the episodic tier asks for no texts
            gone = True
            await report_of(house, "drop")
            await report_of(house, "begin", WIDE)
            await complete(house)
        return await of(self, project, texts, *args, model=model)

    monkeypatch.setattr("counterpoint.memory.commit.pipeline._PATIENCE_S", 60.0)
    monkeypatch.setattr(EmbeddingPipeline, "of", late)
    await ingest(house, project, documents(1, 2))
    monkeypatch.undo()
    assert gone
    await complete(house)
    monkeypatch.setattr(house.reembedding, "applied", lambda steps: None)
    await ingest(house, project, documents(1, 3))
    assert (await meanings(house, project))[WIDE] == 20


async def test_commits_while_the_model_is_changed_do_not_hold_it_up_after_it_has_failed(
    house: House, project: str, models: dict[str, EmbeddingModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    second, turn, n = models[SECOND], house.models.switch, 100
    assert isinstance(second, WordModel)
    await ingest(house, project, documents(2))
    await report_of(house, "begin", SECOND)
    await complete(house)

    async def failing(texts: Sequence[str]) -> None:
        second.before = None
        raise Transient("the provider is away")

    second.before = failing
    await ingest(house, project, documents(1, 2))
    await complete(house)

    async def busy(leaves: OtherModel) -> bool:
        nonlocal n
        await ingest(house, project, documents(1, n))
        n += 1
        return await turn(leaves)

    monkeypatch.setattr(house.models, "switch", busy)
    assert (await report_of(house, "switch"))["active"] == SECOND


async def test_a_change_whose_answer_is_lost_is_found_out_by_itself(
    house: House, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ingest(house, project, documents(1))
    changing = house.models._changing

    @asynccontextmanager
    async def unheard() -> AsyncIterator[Any]:
        async with changing() as connection:
            yield connection
        raise Away("the database is away")

    async def until(field: str, value: str) -> None:
        async with asyncio.timeout(60):
            while (await report_of(house)).get(field) != value:  # noqa: ASYNC110 - another task finds it out
                await asyncio.sleep(0.01)

    for act, model, field, value in (("begin", SECOND, "state", "ready"), ("switch", None, "active", SECOND)):
        with monkeypatch.context() as patch:
            patch.setattr(house.models, "_changing", unheard)
            refusal = (await request_reembed(house, act, model)).refusal
        assert refusal is not None
        assert refusal.kind == "transient"
        await until(field, value)
    await ingest(house, project, documents(1, 1))
    assert await meanings(house, project) == {FIRST: 10, SECOND: 10}


async def test_replaced_and_erased_documents_have_no_vector_of_either_model(house: House, project: str) -> None:
    await ingest(house, project, documents(4))
    await report_of(house, "begin", SECOND)
    await complete(house)
    await ingest(house, project, (Document(source="0.md", text="One seal."),))
    assert await meanings(house, project) == {FIRST: 16, SECOND: 16}
    erase = Write(store="erasures", id="e-1", body=Erase(scope="source", what="1.md", reason="asked").model_dump())
    await house.apply("router", house.standing(project, principal="administrator"), writes=(erase,))
    assert await meanings(house, project) == {FIRST: 11, SECOND: 11}
    everything = Write(
        store="erasures", id="e-2", body=Erase(scope="project", what=project, reason="asked").model_dump()
    )
    await house.apply("router", house.standing(project, principal="administrator"), writes=(everything,))
    assert await meanings(house, project) == {}
    assert (await complete(house))["state"] == "ready"


async def test_texts_that_a_model_may_not_read_are_reported_and_found_by_words(
    urls: Any, project: str, models: dict[str, EmbeddingModel]
) -> None:
    models[SECOND] = WordModel(SECOND, secret=1)
    async with run_house(urls, models[FIRST], models) as house:
        await ingest(house, project, documents(2))
        await report_of(house, "begin", SECOND)
        report = await complete(house)
        assert (report["state"], report["vectors"], report["of"], report["refused"]) == ("ready", 0, 10, 10)
        assert report["refused_records"][0] | {"id": ""} == {
            "project": project, "store": "chunks", "id": "", "reason": "label",
        }  # fmt: skip
        await report_of(house, "switch")
        hits = await search_hits(house, project, vector_weight=0.0)
        assert len(hits) == 10
        assert {cosine for _, cosine in hits} == {0.0}


async def test_a_model_that_fails_meanwhile_fails_no_write_and_is_asked_again(
    house: House, project: str, models: dict[str, EmbeddingModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("counterpoint.memory.operations.reembedding._RETRY_S", (0.01,))
    await ingest(house, project, documents(2))
    second, fails = models[SECOND], True
    assert isinstance(second, WordModel)
    await report_of(house, "begin", SECOND)
    await complete(house)

    async def failing(texts: Sequence[str]) -> None:
        if fails:
            raise Transient("the provider is away")

    second.before = failing
    await ingest(house, project, documents(1, 2))
    assert (await meanings(house, project))[FIRST] == 15
    async with asyncio.timeout(60):
        while (report := await report_of(house))["problem"] is None:  # noqa: ASYNC110 - another task fills
            await asyncio.sleep(0.01)
    assert (report["state"], report["vectors"], report["problem"]) == ("filling", 10, "the provider is away")
    fails = False
    assert (await complete(house))["vectors"] == 15


async def test_illegal_steps_are_refused_and_repeated_ones_change_nothing(
    house: House, project: str, models: dict[str, EmbeddingModel]
) -> None:
    await ingest(house, project, documents(3))

    async def refused(act: str, model: str | None = None) -> tuple[str, str]:
        refusal = (await request_reembed(house, act, model)).refusal
        assert refusal is not None
        return refusal.code, refusal.problems[0].problem if refusal.problems else ""

    assert (await refused("begin", "no-such-model"))[0] == "invalid"
    assert "minilm-l6-v2-int8" in (await refused("begin", "no-such-model"))[1]
    assert (await refused("begin"))[0] == "invalid"
    assert await refused("begin", FIRST) == ("conflict", f"{FIRST} is already active")
    for act in ("switch", "rollback", "drop"):
        assert await refused(act) == ("not_found", "there is no other model")
    held = asyncio.Event()
    second = models[SECOND]
    assert isinstance(second, WordModel)
    await report_of(house, "begin", SECOND)
    await complete(house)
    await report_of(house, "drop")
    await wait_until_deleted(house, project, SECOND)

    async def holding(texts: Sequence[str]) -> None:
        if texts != ["ready?"]:
            await held.wait()

    second.before = holding
    await ingest(house, project, documents(13, 3))
    await report_of(house, "begin", SECOND)
    assert (await report_of(house, "begin", SECOND))["state"] == "filling"
    assert (await refused("switch"))[1] == f"80 records have no vector of {SECOND} yet"
    assert (await refused("begin", WIDE))[0] == "conflict"
    assert (await refused("rollback"))[0] == "conflict"
    assert (await refused("drop", WIDE))[0] == "not_found"
    held.set()
    await complete(house)
    await report_of(house, "switch")
    assert await refused("begin", FIRST) == ("conflict", f"{FIRST} is the previous model: roll back to it")
    assert (await refused("switch"))[0] == "conflict"
    lead = {"name": "lead", "kind": "person", "projects": [project], "roles": ["operate", "read"]}
    write = Write(store="principals", id="l" * 64, body=lead)
    await house.apply("router", house.standing("default", principal="administrator"), writes=(write,))
    reply = await house.query("router", house.standing(project, principal="lead"), Reembed(act="drop"))
    assert reply.refusal is not None
    assert (reply.refusal.code, reply.refusal.needed) == ("role", "the role operate in all projects")
    async with house.superuser() as connection:
        said = [json.loads(body) for body in await leaf_bodies(connection)]
    assert [(each["reembed"], each["model"], each["principal"]) for each in said if "reembed" in each] == [
        ("begin", SECOND, "administrator"), ("drop", SECOND, "administrator"), ("begin", SECOND, "administrator"),
        ("switch", SECOND, "administrator"),
    ]  # fmt: skip


async def test_a_house_without_a_vector_takes_the_model_of_its_settings_and_another_keeps_its_own(
    urls: Any, project: str, models: dict[str, EmbeddingModel]
) -> None:
    async with run_house(urls, models[FIRST], models):
        pass
    async with run_house(urls, models[SECOND], models) as house:
        assert (await report_of(house))["active"] == SECOND
        await ingest(house, project, documents(1))
        await report_of(house, "begin", WIDE)
        await complete(house)
        await report_of(house, "switch")
    async with run_house(urls, models[FIRST], models) as house:
        report = await report_of(house)
        assert (report["active"], report["other"], report["state"]) == (WIDE, SECOND, "kept")
        assert len(await search_hits(house, project)) == 5


@pytest.mark.parametrize("model", [SECOND, WIDE])
async def test_a_large_project_has_an_index_of_the_other_model_before_the_switch(
    house: House, urls: Any, project: str, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("counterpoint.memory.operations.reembedding.EXACT_ROWS", 10)
    house.search._exact_rows = 10
    await ingest(house, project, documents(60))
    await report_of(house, "begin", model)
    assert (await complete(house))["unindexed"] == [project]
    refusal = (await request_reembed(house, "switch")).refusal
    assert refusal is not None
    assert (refusal.code, refusal.problems[0].field) == ("conflict", "unindexed")
    assert await index_projects(urls.owner, 10) == [project]
    assert (await report_of(house))["unindexed"] == []
    for act in ("switch", "rollback", "switch"):
        await report_of(house, act)
        query = VectorSearch(store="chunks", text=f"{QUESTION} {act}", k=10)
        answer = await house.answer("router", house.standing(project), query)
        assert (answer.plan, len(answer.items)) == ("indexed", 10)
    await report_of(house, "drop")
    assert await index_projects(urls.owner, 10) == []
    async with house.superuser() as connection:
        left = await connection.fetchval("SELECT count(*) FROM pg_class WHERE starts_with(relname, 'meanings_of_')")
    assert left == 1

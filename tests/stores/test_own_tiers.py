"""The tiers that the commit itself writes, record and vector, and the cache: by the same contract."""

from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
from memory_service.house import House
from stores.tier_contract import BILLING, CONFIDENTIAL, ORDERS, Answer, Driver, TierContract, Wrote, vector
from structlog.testing import capture_logs

from counterpoint.local.valkey import run_valkey
from counterpoint.memory.cache.valkey import Valkey
from counterpoint.memory.embedding.model import Embedder, LocalEmbedder, Vectors
from counterpoint.memory.embedding.vector_cache import VectorCache
from counterpoint.memory.record.plan import CommitPlan, PlannedWrite, canonical
from counterpoint.memory.search.vectors import SearchEngine
from counterpoint.proto.errors import Conflict
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import HybridSearch, List, VectorSearch


class CommitDriver(Driver):
    """Through the committer: a version that is not the next one is in the way."""

    store: str

    def __init__(self, house: House) -> None:
        self.house = house
        self.names = {project: f"{project}-{uuid4().hex[:8]}" for project in (ORDERS, BILLING)}

    async def apply(self, *written: Wrote) -> None:
        for each in written:
            row = PlannedWrite(
                store=self.store, id=each.id, expect=each.version - 1,
                body=None if each.says is None else canonical({"text": each.says, "tried": each.says}),
                task_id=None, author="developer", label=each.label, integrity=2, sha256=b"x" * 32,
            )  # fmt: skip
            step = CommitPlan(
                project=self.names[each.project], commit_id=new_id(), consumer="test", message_id=new_id(), step="done",
                last=True, fence=1, task_id=None, task_version=None, ended_ok=True, audit="{}",
                salt=b"s" * 16, reads=None, writes=(row,),
            )  # fmt: skip
            try:
                await self.house.commits.apply(step)
            except Conflict:
                continue

    async def again(self) -> None:
        self.house.restart()

    async def rebuilt(self, project: str, *written: Wrote) -> None:
        """The record is what others are built from."""
        self.names[project] = f"{project}-{uuid4().hex[:8]}"
        for each in written:
            for version in range(1, each.version + 1):
                says = each.says if version == each.version else "before"
                await self.apply(Wrote(each.id, version, says, each.label, each.project))

    async def close(self) -> None:
        """The house stays open for others."""


class RecordDriver(CommitDriver):
    store = "coder_memory"

    async def seen(self, project: str = ORDERS, clearance: int = CONFIDENTIAL) -> Answer:
        origin = self.house.standing(self.names[project])
        grant, _ = await self.house.authority.authorise("router", origin)
        (found,) = await self.house.queries.answer(grant, (List(store=self.store, limit=1000),))
        return sorted((item.id, item.version, item.body["text"]) for item in found.items)


class VectorDriver(CommitDriver):
    store = "attempts"

    async def seen(self, project: str = ORDERS, clearance: int = CONFIDENTIAL) -> Answer:
        origin = self.house.standing(self.names[project])
        grant, _ = await self.house.authority.authorise("router", origin)
        asked = VectorSearch(store=self.store, text="what was attempted before", k=100)
        (found,) = await self.house.queries.answer(grant, (asked,))
        rows = [(item.id, item.version, round(item.score or 0, 6)) for item in found.items]
        return sorted(rows, key=lambda row: (-row[2], row[0]))


class TestRecord(TierContract):
    @pytest.fixture(autouse=True)
    def set_house(self, house: House) -> None:
        self.house = house

    async def driver(self, folder: Path) -> Driver:
        return RecordDriver(self.house)


class TestVector(TierContract):
    @pytest.fixture(autouse=True)
    def set_house(self, house: House) -> None:
        self.house = house

    async def driver(self, folder: Path) -> Driver:
        return VectorDriver(self.house)


class _Folder(LocalEmbedder):
    """Embeds every text as the same vector, and notes it."""

    model_id, dimensions = "model-1", 384

    def __init__(self, counted: list[str]) -> None:
        super().__init__()
        self.counted = counted

    def vector(self, text: str) -> Vectors:
        self.counted.append(text)
        return vector(1)


class _BuiltIn(Embedder):
    """The built-in model, which does the same."""

    def __init__(self, counted: list[str]) -> None:
        super().__init__(Path())
        self.counted = counted

    def vector(self, text: str) -> Vectors:
        self.counted.append(text)
        return vector(1)


class TestCache:
    """The cache holds vectors of texts and no records: of the contract it keeps projects, models and absence apart."""

    async def test_projects_and_models_are_apart_in_both_levels_and_an_absent_server_is_a_miss(
        self, tmp_path: Path
    ) -> None:
        made: list[Valkey] = []

        def cache(url: str, model: str = "model-1") -> VectorCache:
            made.append(Valkey(url, b"secret"))
            return VectorCache(made[-1], model)

        async with run_valkey(tmp_path) as valkey:
            first = cache(valkey.url)
            assert await first.get(ORDERS, "a text") is None
            first.put(ORDERS, "a text", vector(1))
            first.put(BILLING, "a text", vector(2))
            await made[0].written()
            # Another process has an empty first level.
            for each in (first, cache(valkey.url)):
                for project, wanted in ((ORDERS, vector(1)), (BILLING, vector(2))):
                    found = await each.get(project, "a text")
                    assert found is not None
                    assert np.array_equal(found, wanted)
            assert await cache(valkey.url, "model-2").get(ORDERS, "a text") is None
            await valkey.kill()
            assert await cache(valkey.url).get(ORDERS, "a text") is None
            first.put(ORDERS, "another", vector(3))
            assert await first.get(ORDERS, "another") is not None
        for each in made:
            await each.close()

    @pytest.mark.parametrize("built_in", [False, True])
    async def test_vectors_of_the_built_in_model_are_in_the_first_level_alone(
        self, tmp_path: Path, *, built_in: bool
    ) -> None:
        query, counted = HybridSearch(store="chunks", text="a text"), list[str]()
        async with run_valkey(tmp_path) as valkey:
            entries = Valkey(valkey.url, b"secret")
            for _ in range(2):  # Another process has an empty first level.
                model = _BuiltIn(counted) if built_in else _Folder(counted)
                found = await SearchEngine(None, entries, embedder=model).embed(ORDERS, [query])
                assert np.array_equal(found["a text"], vector(1))
                await entries.written()
                model.close()
            await entries.close()
        assert len(counted) == (2 if built_in else 1)

    async def test_a_refused_login_is_a_miss_and_names_the_setting_to_correct(self, tmp_path: Path) -> None:
        async with run_valkey(tmp_path, "right") as valkey:
            entries = Valkey(valkey.url.replace("right", "wrong"), b"secret")
            with capture_logs() as logs:
                assert await entries.get(b"key") is None
            await entries.close()
        assert [each["event"] for each in logs] == ["cache.refused"]
        assert "COUNTERPOINT_VALKEY_URL" in logs[0]["remedy"]

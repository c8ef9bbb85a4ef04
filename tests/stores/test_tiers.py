"""The tiers beside the record, each by the one contract, and then what each has of its own."""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from stores.tier_contract import BILLING, CONFIDENTIAL, ORDERS, Answer, Driver, TierContract, TierDriver, Wrote, vector

from counterpoint.memory.embedding.model import DIMENSIONS
from counterpoint.memory.projection.episodic import Episodic
from counterpoint.memory.projection.graph import Graph
from counterpoint.memory.projection.line_graph import TEXT_CHARS
from counterpoint.memory.projection.qdrant_embedded import EdgeEpisodic
from counterpoint.memory.projection.qdrant_server import LOCAL, ServerEpisodic
from counterpoint.memory.projection.tier import RecordChange, Tier, TierPosition, TierScope
from counterpoint.proto.errors import Away, Permanent

STORE = "coder_memory"
QUESTION = vector(0)


def episode(wrote: Wrote, seq: int, **body: Any) -> RecordChange:
    says = None if wrote.says is None else {"text": wrote.says, **body}
    seed = sum(map(ord, wrote.says or "")) + 1
    return RecordChange(
        wrote.project, STORE, wrote.id, wrote.version, seq, "developer", wrote.label, "t1", body=says, vector=None
        if says is None else vector(seed)
    )  # fmt: skip


class EpisodicDriver(TierDriver):
    tier: Episodic

    def change(self, wrote: Wrote, seq: int) -> RecordChange:
        return episode(wrote, seq)

    async def seen(self, project: str = ORDERS, clearance: int = CONFIDENTIAL) -> Answer:
        hits = await self.tier.search(TierScope(project, (STORE,), clearance), QUESTION, {}, 100)
        return [(hit.id, hit.version, hit.score) for hit in hits]


class EdgeDriver(EpisodicDriver):
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__(self.opened())

    def opened(self) -> Tier:
        return EdgeEpisodic(self.folder, "model-1", keep=2)


class ServerDriver(EpisodicDriver):
    """Without a server its data is in its client."""

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(ServerEpisodic(url, f"model-{uuid4()}"))

    def opened(self) -> Tier:
        return ServerEpisodic(self.url, self.tier.model)

    async def again(self) -> None:
        if self.url != LOCAL:
            await super().again()

    async def close(self) -> None:
        for project in (ORDERS, BILLING):
            await self.tier.drop(project)
        await super().close()


class GraphDriver(TierDriver):
    tier: Graph

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__(self.opened())

    def opened(self) -> Tier:
        return Graph(self.folder, CONFIDENTIAL, keep=2)

    def change(self, wrote: Wrote, seq: int) -> RecordChange:
        body = None if wrote.says is None else {"action_id": wrote.id, "task_id": "t1", "reasoning": wrote.says}
        return RecordChange(
            wrote.project, "actions", wrote.id, wrote.version, seq, "router", wrote.label, "t1", body=body
        )

    async def seen(self, project: str = ORDERS, clearance: int = CONFIDENTIAL) -> Answer:
        query = "MATCH (a:Action) RETURN a.action_id, a.version, a.reasoning ORDER BY a.action_id"
        return [tuple(row) for row in (await self.tier.cypher(project, query, {}, 1000, 2000)).rows]


class EpisodicContract(TierContract):
    """Further behaviour of every engine of episodic memory."""

    @pytest.fixture
    def episodic(self, tier: Driver) -> Episodic:
        assert isinstance(tier, EpisodicDriver)
        return tier.tier

    async def test_fields_are_filtered_by_inside_the_search(self, episodic: Episodic) -> None:
        bodies = [
            {"language": "python" if n % 50 == 0 else "go", "success": n % 100 == 0, "tries": 1} for n in range(500)
        ]
        changes = [episode(Wrote(f"r{n:03}", says=f"attempt {n}"), n, **body) for n, body in enumerate(bodies)]
        await episodic.apply(ORDERS, changes, TierPosition("life", 500))
        scope = TierScope(ORDERS, (STORE,), CONFIDENTIAL)

        async def found(**where: Any) -> set[str]:
            return {hit.id for hit in await episodic.search(scope, QUESTION, where, 10)}

        assert await found(language="python") == {f"r{n:03}" for n in range(0, 500, 50)}
        assert await found(language="python", success=True) == {f"r{n:03}" for n in range(0, 500, 100)}
        assert await found(success=True, author="developer", task_id="t1") == {f"r{n:03}" for n in range(0, 500, 100)}
        assert await found(tries=True) == set()
        assert len(await found(tries=1)) == 10
        assert await found(author="judge") == set()
        assert await episodic.search(TierScope(ORDERS, ("judge_memory",), CONFIDENTIAL), QUESTION, {}, 10) == []

    async def test_an_illegal_filter_value_is_named(self, episodic: Episodic) -> None:
        for value in (1.5, None, ["a"], "x" * 201):
            with pytest.raises(Permanent, match=r"where\.language"):
                await episodic.search(TierScope(ORDERS, (STORE,), 2), QUESTION, {"language": value}, 5)

    async def test_a_vector_of_another_length_is_refused_with_both(self, episodic: Episodic) -> None:
        short = np.ones(3, np.float32)
        wrong = RecordChange(ORDERS, STORE, "a", 1, 1, "developer", 1, body={"text": "x"}, vector=short)
        with pytest.raises(Permanent, match=f"3 numbers, but model.* has {DIMENSIONS} dimensions"):
            await episodic.apply(ORDERS, [wrong], TierPosition("life", 1))
        with pytest.raises(Permanent, match=f"3 numbers, but model.* has {DIMENSIONS} dimensions"):
            await episodic.search(TierScope(ORDERS, (STORE,), 2), short, {}, 5)

    async def test_ties_are_broken_independently_of_arrival(self, tier: Driver, episodic: Episodic) -> None:
        same = [Wrote(f"r{n}", says="the same") for n in range(12)]
        await tier.apply(*same)
        scope = TierScope(ORDERS, (STORE,), 2)
        first = [hit.id for hit in await episodic.search(scope, QUESTION, {}, 3)]
        await tier.rebuilt(ORDERS, *reversed(same))
        assert [hit.id for hit in await episodic.search(scope, QUESTION, {}, 3)] == first == ["r0", "r1", "r10"]


class TestEdge(EpisodicContract):
    async def driver(self, folder: Path) -> Driver:
        return EdgeDriver(folder)

    async def test_files_of_a_killed_rebuild_are_removed_at_the_next_start(self, tmp_path: Path) -> None:
        """Nobody follows it: what is erased from the record would stay in it."""
        left = [tmp_path / "model-1" / ORDERS / name / "of before" for name in ("draft", "old")]
        for folder in left:
            folder.mkdir(parents=True)
        tier = EdgeEpisodic(tmp_path, "model-1")
        assert await tier.position(ORDERS) is None
        assert not any(folder.parent.exists() for folder in left)
        await tier.apply(ORDERS, [], TierPosition("a life", 1), draft=True)
        assert await tier.position(ORDERS, draft=True) == TierPosition("a life", 1)
        await tier.close()

    async def test_vectors_of_another_model_are_somewhere_else(self, tmp_path: Path) -> None:
        first, second = EdgeEpisodic(tmp_path, "model-1"), EdgeEpisodic(tmp_path, "model-2")
        await first.apply(ORDERS, [episode(Wrote("a"), 1)], TierPosition("life", 1))
        assert await second.position(ORDERS) is None
        with pytest.raises(Away, match="has no data"):
            await second.search(TierScope(ORDERS, (STORE,), 2), QUESTION, {}, 5)
        await first.close()
        await second.close()


class TestLocalClient(EpisodicContract):
    async def driver(self, folder: Path) -> Driver:
        return ServerDriver(LOCAL)

    async def test_a_server_that_does_not_answer_is_away(self) -> None:
        nobody = ServerEpisodic("http://127.0.0.1:9", "model-1")
        with pytest.raises(Away, match="does not respond"):
            await nobody.search(TierScope(ORDERS, (STORE,), 2), QUESTION, {}, 5)
        with pytest.raises(Away, match="does not respond"):
            await nobody.apply(ORDERS, [], TierPosition("life", 1))
        await nobody.close()


@pytest.mark.skipif("COUNTERPOINT_TEST_QDRANT_URL" not in os.environ, reason="needs COUNTERPOINT_TEST_QDRANT_URL")
class TestServer(EpisodicContract):
    async def driver(self, folder: Path) -> Driver:
        return ServerDriver(os.environ["COUNTERPOINT_TEST_QDRANT_URL"])


class TestGraph(TierContract):
    async def driver(self, folder: Path) -> Driver:
        return GraphDriver(folder)

    async def test_more_than_fits_into_one_transaction_is_written_in_several(self, tier: Driver) -> None:
        assert isinstance(tier, GraphDriver)
        await tier.apply(*(Wrote(f"r{n:04}", says=f"{n} " + "x" * 20_000) for n in range(3000)))
        found = (
            await tier.tier.cypher(ORDERS, "MATCH (a:Action) RETURN count(*), max(size(a.reasoning))", {}, 1, 2500)
        ).rows
        assert found == ((3000, TEXT_CHARS),)
        assert await tier.tier.position(ORDERS) == TierPosition("life", tier.seq)

    @staticmethod
    def free_texts() -> None:
        """Free texts of all sizes of block that the engine may be given next."""
        freed = [b"a refused text, " * (size // 16) for size in (600, 1000, 4096, 9000, 40_000) for _ in range(500)]
        del freed

    async def test_memory_that_the_process_has_freed_is_not_in_the_file(self, tier: Driver) -> None:
        assert isinstance(tier, GraphDriver)
        for number in range(8):
            await asyncio.to_thread(self.free_texts)  # the thread that writes next, whose memory is its own
            await tier.apply(Wrote(f"r{number}", says="a text"))
        await tier.close()
        files = [path.read_bytes() for path in tier.folder.rglob("*.lbug*")]
        assert any(b"a text" in content for content in files)
        assert not any(b"a refused text" in content for content in files)

    async def test_edges_follow_targets_that_appear_and_disappear(self, tier: Driver) -> None:
        graph = Graph(Path(tier.folder) / "other", CONFIDENTIAL)  # type: ignore[attr-defined]

        async def take(*changes: RecordChange) -> list[list[Any]]:
            await graph.apply(ORDERS, changes, TierPosition("life", 1))
            query = "MATCH (a)-[e]->(b) RETURN label(e), coalesce(a.action_id), coalesce(b.action_id, b.task_id)"
            return sorted([list(row) for row in (await graph.cypher(ORDERS, query, {}, 100, 1000)).rows])

        def action(name: str, version: int, **body: Any) -> RecordChange:
            return RecordChange(
                ORDERS, "actions", name, version, version, "router", 1, "t1", body={"task_id": "t1", **body}
            )

        def task(version: int, body: Any) -> RecordChange:
            return RecordChange(ORDERS, "tasks", "t1", version, version, "manager", 1, "t1", body=body)

        child = action("b", 1, after=["a"], coordinates_with=["c"])
        assert await take(child) == []
        led = ["LEADS_TO", "a", "b"]
        of = [["PART_OF", "a", "t1"], ["PART_OF", "b", "t1"]]
        assert await take(action("a", 1)) == [led]
        assert await take(task(1, {"state": "working"})) == [led, *of]
        assert await take(task(2, None)) == [led]
        assert await take(task(3, {"state": "working"}), action("c", 1)) == [
            ["COORDINATES_WITH", "b", "c"], led, *of, ["PART_OF", "c", "t1"]
        ]  # fmt: skip
        assert await take(action("b", 2)) == [*of, ["PART_OF", "c", "t1"]]
        await graph.close()


class OnDisk:
    """Behaviour of tiers in a folder that is not as they left it."""

    @pytest.fixture(params=[EdgeDriver, GraphDriver])
    async def disk_driver(self, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
        driver = request.param(tmp_path)
        await driver.apply(Wrote("a"), Wrote("b"))
        yield driver
        await driver.close()


class TestOnDisk(OnDisk):
    def files(self, driver: Any) -> Iterator[Path]:
        return (path for path in driver.folder.rglob("*") if path.is_file() and path.name != "lock")

    async def test_a_folder_that_is_gone_is_away_and_then_empty(self, disk_driver: Any) -> None:
        (live,) = disk_driver.folder.rglob("live")
        live.rename(live.with_name("elsewhere"))
        with pytest.raises(Away, match="removed from the disk"):
            await disk_driver.seen()
        with pytest.raises(Away, match="has no data"):
            await disk_driver.seen()
        assert await disk_driver.tier.position(ORDERS) is None

    async def test_damaged_files_are_put_aside_and_rebuilt(self, disk_driver: Any) -> None:
        await disk_driver.tier.close()
        for path in list(self.files(disk_driver)):
            path.write_bytes(b"no such thing " * 500)
        disk_driver.tier = disk_driver.opened()
        assert await disk_driver.tier.position(ORDERS) is None
        assert list(disk_driver.folder.rglob("broken"))
        await disk_driver.apply(Wrote("a", 2))
        assert [row[:2] for row in await disk_driver.seen()] == [("a", 2)]

    async def test_two_processes_do_not_share_a_folder(self, disk_driver: Any) -> None:
        await disk_driver.tier.close()
        (lock,) = disk_driver.folder.rglob("lock")
        with lock.open("r+") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            disk_driver.tier = disk_driver.opened()
            with pytest.raises(Away, match="cannot be opened"):
                await disk_driver.tier.position(ORDERS)
        assert await disk_driver.tier.position(ORDERS) is not None

    async def test_no_more_are_open_than_are_kept_and_all_answer(self, disk_driver: Any) -> None:
        for n in range(5):
            await disk_driver.apply(Wrote(f"of-{n}", project=f"p{n}"))
        for n in range(5):
            assert [row[0] for row in await disk_driver.seen(f"p{n}")] == [f"of-{n}"]
        assert len(disk_driver.tier._handles._open_handles) <= 2

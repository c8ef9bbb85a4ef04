"""Documents: whole in the end whatever comes between, and nobody else waits for a large one."""

import asyncio
import hashlib
import json
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from ingest.document_records import (
    SOURCE,
    document,
    ingested,
    killed_in_second_step,
    leaves,
    reply,
    stored_document,
    text,
)
from memory_service.house import House

from counterpoint.guard.policy import policy
from counterpoint.memory.commit import pipeline
from counterpoint.memory.ingest import document_plan, documents
from counterpoint.proto.ingest import Document, DocumentResult, IngestReply, IngestRequest, Job, JobProgress


class TestALargeDocument:
    async def test_is_written_in_steps_between_which_others_commit(self, house: House, project: str) -> None:
        handed_in = asyncio.create_task(ingested(house, project, document(text("seal"))))
        tasks = 0
        while not handed_in.done():
            tasks += 1
            await house.routed(f"{project}-b", f"t-{tasks}")
        (became,) = await handed_in
        assert (became.status, became.chunks) == ("added", 450)
        of_all = await leaves(house, project)
        steps = [at for at, stores in enumerate(of_all) if "chunks" in stores]
        assert [len(of_all[at]) for at in steps] == [200, 200, 51]
        assert [of_all[at].count("documents") for at in steps] == [0, 0, 1]
        assert of_all[steps[-1]][-1] == "documents"
        assert all(later - earlier > 1 for earlier, later in pairwise(steps))

    @pytest.mark.parametrize("part", ["judge", "chunk", "plan_commit", "row"])
    async def test_does_not_stop_the_loop(
        self, house: House, project: str, monkeypatch: pytest.MonkeyPatch, part: str
    ) -> None:
        loop, begun, others_went_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
        whole: Any = {"row": pipeline.SearchEngine, "judge": document_plan.Screen, "chunk": document_plan}.get(
            part, documents
        )
        real: Callable[..., Any] = getattr(whole, part)
        waited: list[bool] = []

        def until_others_went_on(*args: Any, **named: Any) -> Any:
            loop.call_soon_threadsafe(begun.set)
            waited.append(others_went_on.wait(10))
            return real(*args, **named)

        monkeypatch.setattr(whole, part, until_others_went_on)
        handed_in = asyncio.create_task(ingested(house, project, document(text("seal", 1))))
        await begun.wait()
        await house.apply("router", house.standing(f"{project}-b"))
        others_went_on.set()
        assert (await handed_in)[0].status == "added"
        assert waited
        assert all(waited)

    async def test_is_announced_with_all_that_was_written(self, house: House, project: str) -> None:
        before, live = set(house.sent), len(house.announced)
        await ingested(house, project, document(text("seal")))
        logged = [sent.row for known, sent in house.sent.items() if known not in before]
        bodies = [json.loads(row.body) for row in (*logged, *house.announced[live:])]
        written = [write["store"] for body in bodies for write in body["writes"]]
        assert (written.count("chunks"), written.count("documents")) == (450, 1)


class TestTheSameSource:
    async def test_by_two_concurrent_requests_has_the_text_of_one(
        self, house: House, project: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        replace, inside, beside = documents.Ingest._replace, 0, list[int]()

        async def counted(*args: Any, **options: Any) -> DocumentResult:
            nonlocal inside
            inside += 1
            beside.append(inside)
            became = await replace(*args, **options)
            inside -= 1
            return became

        monkeypatch.setattr(documents.Ingest, "_replace", counted)
        both = await asyncio.gather(
            ingested(house, project, document(text("seal"))), ingested(house, project, document(text("valve", 420)))
        )
        assert beside == [1, 1]
        assert sorted(became.status for (became,) in both) == ["added", "replaced"]
        record, written, _ = await stored_document(house, project)
        assert record is not None
        assert written == (text("seal") if record["chunks"] == 450 else text("valve", 420))

    async def test_twice_in_one_request_is_the_later_one(self, house: House, project: str) -> None:
        became = await ingested(house, project, document(text("seal", 1)), document(text("valve", 1)))
        assert [each.status for each in became] == ["added", "replaced"]
        assert (await stored_document(house, project))[1] == text("valve", 1)

    async def test_three_times_in_one_request_is_the_last_one(self, house: House, project: str) -> None:
        became = await ingested(house, project, *(document(text(word, 1)) for word in ("seal", "valve", "seal")))
        assert [each.status for each in became] == ["added", "replaced", "replaced"]
        assert (await stored_document(house, project))[1] == text("seal", 1)


class TestTheSameTexts:
    async def test_embedded_concurrently_in_another_order_do_not_deadlock(self, house: House, project: str) -> None:
        vectors, model = pipeline.EmbeddingPipeline(house.database, policy(), house.search), house.search.model_id
        low, between, high = sorted(("seal", "valve", "motor"), key=lambda each: hashlib.sha256(each.encode()).digest())

        async def waiting(connection: Any, tasks: int) -> None:
            blocked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ 'embeddings'"
            async with asyncio.timeout(60):
                while await connection.fetchval(blocked) < tasks:  # noqa: ASYNC110 - a lock of the database has no event
                    await asyncio.sleep(0.01)

        async with house.superuser() as third, house.superuser() as looking:
            held = third.transaction()
            await held.start()
            await third.execute(
                "INSERT INTO embeddings (project, model, sha256, embedding) VALUES ($1, $2, $3, $4::text::vector)",
                project, model, hashlib.sha256(between.encode()).digest(), str([0.0] * 383 + [1.0]),
            )  # fmt: skip
            first = asyncio.create_task(vectors.of(project, [high, between, low]))
            await waiting(looking, 1)
            second = asyncio.create_task(vectors.of(project, [low, high]))
            await waiting(looking, 2)
            await held.commit()
        assert [made for _, made in await asyncio.gather(first, second)] == [3, 2]


class TestMissingDocument:
    @staticmethod
    def found(source: str, content: str, root: str = "file://host/docs") -> Document:
        return Document(source=source, text=content, root=root)

    async def test_is_deleted_with_its_chunks_by_its_own_root(self, house: House, project: str) -> None:
        await ingested(house, project, self.found(SOURCE, text("seal", 450)))
        (became,) = await ingested(house, project, Document(source=SOURCE, gone=True, root="file://host/docs"))
        assert became.status == "deleted"
        assert await stored_document(house, project) == (None, "", set())
        async with house.superuser() as connection:
            assert await connection.fetchval("SELECT count(*) FROM vectors WHERE project = $1", project) == 0
        (again,) = await ingested(house, project, Document(source=SOURCE, gone=True, root="file://host/docs"))
        assert again.status == "unchanged"

    async def test_is_not_deleted_by_another_root(self, house: House, project: str) -> None:
        for root in ("file://other/docs", None):
            (became,) = await ingested(house, project, self.found(SOURCE, text("seal", 1)))
            (became,) = await ingested(house, project, Document(source=SOURCE, gone=True, root=root))
            assert became.status == "unchanged"
            assert (await stored_document(house, project))[0] is not None

    async def test_and_was_killed_on_the_way_goes_when_it_is_asked_for_again(
        self, house: House, project: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await ingested(house, project, self.found(SOURCE, text("seal", 450)))
        gone = Document(source=SOURCE, gone=True, root="file://host/docs")
        with killed_in_second_step(house, monkeypatch):
            assert (await reply(house, house.standing(project, principal="administrator"), gone)).refusal is not None
        assert (await stored_document(house, project))[0] is not None
        (became,) = await ingested(house, project, gone)
        assert became.status == "deleted"
        assert await stored_document(house, project) == (None, "", set())


class TestAJob:
    async def handed_in(self, house: House, project: str, done: int, *documents: Document) -> None:
        origin = house.standing(project, principal="administrator")
        request = IngestRequest(origin=origin, documents=documents, job=Job(job_id="j-1", documents=3, done=done))
        answer = await house.door.ingest("router", request.model_dump_json().encode())
        assert IngestReply.model_validate_json(answer).refusal is None

    async def progress(self, house: House, project: str) -> JobProgress:
        async with house.superuser() as connection:
            body = await connection.fetchval(
                "SELECT body::text FROM records WHERE project = $1 AND store = 'ingests' AND id = 'j-1'", project
            )
        return JobProgress.model_validate_json(body)

    async def test_is_recorded_and_announced_with_every_batch(self, house: House, project: str) -> None:
        first = [Document(source="a.md", text="# A\n\nText."), Document(source="b.md", text="")]
        before, live = set(house.sent), len(house.announced)
        await self.handed_in(house, project, 0, *first)
        logged = [sent.row for known, sent in house.sent.items() if known not in before]
        bodies = [json.loads(row.body) for row in (*logged, *house.announced[live:])]
        assert ["ingests", "j-1", 1] in [
            [write["store"], write["id"], write["version"]] for body in bodies for write in body["writes"]
        ]
        now = await self.progress(house, project)
        assert (now.state, now.done, now.by_status, now.chunks, now.embedded) == (
            "running",
            2,
            {"added": 1, "refused": 1},
            1,
            1,
        )
        await self.handed_in(house, project, 0, *first)
        assert await self.progress(house, project) == now
        await self.handed_in(house, project, 2, Document(source="c.md", text="# C"))
        now = await self.progress(house, project)
        assert (now.state, now.done, now.by_status) == ("done", 3, {"added": 2, "refused": 1})


async def test_an_untrusted_document_has_no_integrity_until_it_is_vouched_for(house: House, project: str) -> None:
    async def integrities() -> set[int]:
        async with house.superuser() as connection:
            rows = await connection.fetch(
                "SELECT integrity FROM records WHERE project = $1 AND store IN ('documents', 'chunks')", project
            )
        return {row["integrity"] for row in rows}

    mine = document(text("seal", 3))
    for untrusted, integrity in ((True, 0), (False, 2), (True, 0)):
        (became,) = await ingested(house, project, mine.model_copy(update={"untrusted": untrusted}))
        assert became.status in ("added", "replaced")
        assert await integrities() == {integrity}

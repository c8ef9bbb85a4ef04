"""Documents: whole in the end whatever comes between, and nobody else waits for a large one."""

import asyncio
import base64
import hashlib
import json
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from ingest.pdf_files import paper
from memory_service.house import House
from memory_service.leaves import leaf_bodies

from counterpoint.guard.policy import policy
from counterpoint.memory.commit import pipeline
from counterpoint.memory.ingest import document_plan, documents
from counterpoint.memory.ingest.readers import pdf, sandbox
from counterpoint.memory.record.plan import CommitPlan
from counterpoint.proto.errors import Transient
from counterpoint.proto.ids import document_id
from counterpoint.proto.ingest import (
    Document,
    Ingested,
    IngestReply,
    IngestRequest,
    Job,
    JobProgress,
    PutPart,
    PutReply,
)
from counterpoint.proto.memory import CommitReply, Origin
from counterpoint.proto.messages import Blob

SOURCE = "runbooks/pumps.md"


def text(word: str, sections: int = documents.STEP_WRITES * 2 + 50) -> str:
    """A document of as many chunks as sections."""
    return "\n\n".join(f"# Pump {n}\n\nThe {word} of pump {n} is checked." for n in range(sections))


async def reply(house: House, origin: Origin, *documents: Document) -> IngestReply:
    """What the door answers to an ingest."""
    request = IngestRequest(origin=origin, documents=documents)
    return IngestReply.model_validate_json(await house.door.ingest("router", request.model_dump_json().encode()))


async def ingested(house: House, project: str, *documents: Document) -> tuple[Ingested, ...]:
    """What became of documents that an administrator hands in."""
    answer = await reply(house, house.standing(project, principal="administrator"), *documents)
    assert answer.refusal is None, answer.refusal
    return answer.documents


async def test_documents_that_hold_their_readers_up_delay_no_text(
    house: House, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than documents are ingested at a time, and than there are threads."""
    gate, at_once, entered = threading.Event(), list[bool](), threading.Semaphore(0)
    free = threading.BoundedSemaphore(sandbox.READERS)

    def hangs(kind: str, content: bytes) -> sandbox.ReaderResult:
        at_once.append(free.acquire(blocking=False))
        entered.release()
        gate.wait()
        free.release()
        return sandbox.ReaderResult(pages=("x",))

    monkeypatch.setattr(pdf, "read_in_worker", hangs)
    content = base64.b64encode(paper(["x"])).decode()
    hanging = [Document.model_validate({"source": f"{n}.pdf", "content": content}) for n in range(40)]
    held = asyncio.create_task(ingested(house, project, *hanging))
    try:
        await asyncio.to_thread(entered.acquire)
        (found,) = await ingested(house, project, document("# Pumps\n\nThe seal is checked."))
        assert (found.status, held.done()) == ("added", False)
    finally:
        gate.set()
    assert {each.status for each in await held} == {"added"}
    assert all(at_once)


def document(content: str) -> Document:
    """A document under the one source of these tests."""
    return Document(source=SOURCE, text=content)


async def kept(house: House, project: str) -> tuple[dict[str, Any] | None, str, set[int]]:
    """The document's record, the text of its chunks in order, and the versions that those have."""
    async with house.superuser() as connection:
        rows = await connection.fetch(
            "SELECT r.store, r.version, r.body::text, v.version AS found FROM records r"
            " LEFT JOIN vectors v USING (project, store, id)"
            " WHERE project = $1 AND store IN ('documents', 'chunks') AND r.body IS NOT NULL ORDER BY id",
            project,
        )
    chunks = [row for row in rows if row["store"] == "chunks"]
    assert all(row["version"] == row["found"] for row in chunks)
    record = next((json.loads(row["body"]) for row in rows if row["store"] == "documents"), None)
    return record, "\n\n".join(json.loads(row["body"])["text"] for row in chunks), {row["version"] for row in chunks}


async def leaves(house: House, project: str) -> list[list[str]]:
    """The stores that each commit of a project wrote to, in their order, between those of the project beside it: empty
    lists."""
    async with house.superuser() as connection:
        bodies = map(json.loads, await leaf_bodies(connection, "project = ANY ($1)", [project, f"{project}-b"]))
    return [[store for store, *_ in body.get("writes", ())] if body["project"] == project else [] for body in bodies]


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
        await house.done("router", house.standing(f"{project}-b"))
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


class TestADocumentThatIsNotFinished:
    @pytest.mark.parametrize("old", [None, "valve"])
    async def test_is_not_the_new_one_until_it_is_asked_for_again(
        self, house: House, project: str, monkeypatch: pytest.MonkeyPatch, old: str | None
    ) -> None:
        if old is not None:
            await ingested(house, project, document(text(old)))
        known, _, _ = await kept(house, project)
        apply, steps = house.committer.apply, 0

        async def killed(step: CommitPlan) -> CommitReply:
            nonlocal steps
            steps += 1
            if steps == 2:
                raise Transient("killed")
            return await apply(step)

        origin = house.standing(project, principal="administrator")
        with monkeypatch.context() as patch:
            patch.setattr(house.committer, "apply", killed)
            refusal = (await reply(house, origin, document(text("seal")))).refusal
        assert refusal is not None
        assert refusal.kind == "transient"
        record, written, _ = await kept(house, project)
        assert record == known
        assert "The seal of pump 199 " in written
        assert "The seal of pump 200 " not in written
        house.restart()
        (became,) = (await reply(house, origin, document(text("seal")))).documents
        assert (became.status, became.chunks) == ("added" if old is None else "replaced", 450)
        record, written, versions = await kept(house, project)
        assert record is not None
        assert record["sha256"] != (known or {}).get("sha256")
        assert written == text("seal")
        assert versions == {1 if old is None else 2}
        assert (await house.verify(project))["ok"]

    @pytest.mark.parametrize("old", [None, "valve"])
    async def test_is_forgotten_by_the_next_process_where_it_was_new(
        self, house: House, project: str, monkeypatch: pytest.MonkeyPatch, old: str | None
    ) -> None:
        await ingested(house, project, Document(source="other.md", text="Stays."))
        if old is not None:
            await ingested(house, project, document(text(old)))
        apply, steps = house.committer.apply, 0

        async def killed(step: CommitPlan) -> CommitReply:
            nonlocal steps
            steps += 1
            if steps == 2:
                raise Transient("killed")
            return await apply(step)

        origin = house.standing(project, principal="administrator")
        with monkeypatch.context() as patch:
            patch.setattr(house.committer, "apply", killed)
            assert (await reply(house, origin, document(text("seal")))).refusal is not None
        before = await kept(house, project)
        house.restart()
        await house.ingest.delete_orphans()
        after = await kept(house, project)
        assert "The seal of pump 199 " in before[1]
        assert after[1] == ("Stays." if old is None else before[1])
        (became,) = await ingested(house, project, document(text("seal")))
        assert (became.status, became.chunks) == ("added" if old is None else "replaced", 450)
        assert became.embedded == 50

    async def test_that_cannot_be_kept_leaves_the_one_before_it_as_it_was(self, house: House, project: str) -> None:
        await ingested(house, project, document(text("valve")))
        before = await kept(house, project)
        (became,) = await ingested(house, project, Document(source=SOURCE, text=text("seal"), metadata={"a": "\0"}))
        assert (became.status, became.problem) == (
            "refused",
            f"documents/{document_id(SOURCE)} contains a NUL character",
        )
        assert await kept(house, project) == before

    async def test_the_one_before_it_can_be_put_back(
        self, house: House, project: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await ingested(house, project, document(text("valve")))
        embed = pipeline.EmbeddingPipeline.of

        async def first_alone(
            self: pipeline.EmbeddingPipeline, project: str, texts: list[str], *whose: Any, **by: Any
        ) -> Any:
            if "pump 200 " in texts[0]:
                raise Transient("killed")
            return await embed(self, project, texts, *whose, **by)

        with monkeypatch.context() as patch:
            patch.setattr(pipeline.EmbeddingPipeline, "of", first_alone)
            origin = house.standing(project, principal="administrator")
            assert (await reply(house, origin, document(text("seal")))).refusal is not None
        (became,) = await ingested(house, project, document(text("valve")))
        assert became.status == "replaced"
        assert (await kept(house, project))[1] == text("valve")


class TestTheSameSource:
    async def test_by_two_requests_at_once_is_the_text_of_one_of_them(
        self, house: House, project: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        replace, inside, beside = documents.Ingest._replace, 0, list[int]()

        async def counted(*args: Any, **options: Any) -> Ingested:
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
        record, written, _ = await kept(house, project)
        assert record is not None
        assert written == (text("seal") if record["chunks"] == 450 else text("valve", 420))

    async def test_twice_in_one_request_is_the_later_one(self, house: House, project: str) -> None:
        became = await ingested(house, project, document(text("seal", 1)), document(text("valve", 1)))
        assert [each.status for each in became] == ["added", "replaced"]
        assert (await kept(house, project))[1] == text("valve", 1)

    async def test_three_times_in_one_request_is_the_last_one(self, house: House, project: str) -> None:
        became = await ingested(house, project, *(document(text(word, 1)) for word in ("seal", "valve", "seal")))
        assert [each.status for each in became] == ["added", "replaced", "replaced"]
        assert (await kept(house, project))[1] == text("seal", 1)


class TestTheSameTexts:
    async def test_that_two_embed_at_once_in_another_order_are_kept_by_both(self, house: House, project: str) -> None:
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


class TestBytes:
    """What memory reads itself: what it holds is judged as what a text holds."""

    async def uploaded(self, house: House, project: str, content: bytes) -> Blob:
        origin = house.standing(project, principal="administrator")
        part = PutPart(
            origin=origin,
            sha256=hashlib.sha256(content).hexdigest(),
            bytes=len(content),
            part=0,
            content=base64.b64encode(content),
        )
        answer = PutReply.model_validate_json(await house.door.put("router", part.model_dump_json().encode()))
        assert answer.blob is not None, answer.refusal
        return answer.blob

    async def blobs(self, house: House, project: str) -> int:
        async with house.superuser() as connection:
            return int(await connection.fetchval("SELECT count(*) FROM blobs WHERE project = $1", project))

    async def test_of_a_pdf_are_found_by_page_and_what_has_no_text_is_said(self, house: House, project: str) -> None:
        handed_in = Document(
            source="manual.pdf", content=base64.b64encode(paper(["Stop the pump.", "", "Check the seal."], "Pumps"))
        )
        (became,) = await ingested(house, project, handed_in)
        assert (became.status, became.chunks) == ("added", 2)
        assert became.problem == "1 of 3 pages have no text: 2"
        async with house.superuser() as connection:
            rows = await connection.fetch(
                "SELECT body->>'text', body->>'context', body->>'type', body->>'title'"
                " FROM records WHERE project = $1 AND store = 'chunks' ORDER BY id",
                project,
            )
        assert [tuple(row) for row in rows] == [
            ("Stop the pump.", "Pumps > page 1", "pdf", "Pumps"),
            ("Check the seal.", "Pumps > page 3", "pdf", "Pumps"),
        ]
        (again,) = await ingested(house, project, handed_in)
        assert (again.status, again.embedded) == ("unchanged", 0)

    async def test_uploaded_before_are_read_as_well(self, house: House, project: str) -> None:
        blob = await self.uploaded(house, project, paper(["Stop the pump."]))
        (became,) = await ingested(house, project, Document(source="manual.pdf", blob=blob))
        assert (became.status, became.chunks) == ("added", 1)
        assert await self.blobs(house, project) == 1

    @pytest.mark.parametrize(
        ("page", "status", "kept"),
        [
            ("the key is AKIA" + "Z7QK3M5N2P4R6S7T", "refused", 0),
            ("write to ann@example.com", "added", 0),
        ],
    )
    async def test_with_something_sensitive_packed_in_them_are_not_kept(
        self, house: House, project: str, page: str, status: str, kept: int
    ) -> None:
        blob = await self.uploaded(house, project, paper([page], packed=True))
        (became,) = await ingested(house, project, Document(source="manual.pdf", blob=blob))
        assert became.status == status, became
        assert await self.blobs(house, project) == kept

    async def test_that_cannot_be_read_are_refused_and_the_others_go_on(self, house: House, project: str) -> None:
        became = await ingested(
            house,
            project,
            Document(source="a.pdf", content=base64.b64encode(b"%PDF-1.4 broken")),
            Document(source="b.txt", content=base64.b64encode("Größe".encode("latin-1"))),
            Document(source="c.bin", content=base64.b64encode(b"\0\1\2")),
            Document(source="d.txt", content=base64.b64encode(b"")),
            Document(source="e.py", content=base64.b64encode(b"def broken(:\n")),
            Document(source="f.md", content=base64.b64encode(b"# Good\n\nText.")),
        )
        assert [one.status for one in became] == ["refused"] * 4 + ["added"] * 2
        problems = [one.problem or "" for one in became]
        assert problems[0].startswith("content is not a readable PDF")
        assert problems[1:4] == [
            "content is neither UTF-8 nor UTF-16 with a byte order mark",
            "content is binary, of an unsupported format",
            "text is empty",
        ]
        assert problems[4].startswith("not read as Python but as plain text: line 1")

    @pytest.mark.parametrize("said", [r'x = "\u0000"', r'x = "\\u0000"', r"\\\u0000\u0000"])
    async def test_that_name_a_nul_hold_none(self, house: House, project: str, said: str) -> None:
        (became,) = await ingested(house, project, Document(source="a.txt", text=said))
        assert became.status == "added", became
        assert (await kept(house, project))[1] == said

    async def test_that_nobody_foresaw_cost_no_other_document(
        self, house: House, project: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read = documents.read

        def surprised(source: str, *given: Any, **options: Any) -> Any:
            return read(source, *given, **options) if source != "b.md" else {}["nobody thought of this"]

        monkeypatch.setattr(documents, "read", surprised)
        became = await ingested(house, project, *(Document(source=f"{name}.md", text="Text.") for name in "abc"))
        assert [one.status for one in became] == ["added", "refused", "added"]
        assert became[1].problem == "text cannot be read: unexpected KeyError"

    async def test_of_a_conversation_are_chunks_by_turn(self, house: House, project: str) -> None:
        turns = [{"speaker": "Ann", "text": "Where is it?", "at": "8 May"}, {"speaker": "Bob", "text": "In the hall."}]
        await ingested(house, project, Document(source="talk.json", text=json.dumps(turns)))
        async with house.superuser() as connection:
            rows = await connection.fetch(
                "SELECT body->>'text' AS text, body->>'context' AS context FROM records"
                " WHERE project = $1 AND store = 'chunks' ORDER BY id",
                project,
            )
        assert [tuple(row) for row in rows] == [
            ("Where is it?", "8 May | Ann"),
            ("In the hall.", "Bob"),
        ]


class TestWhatIsGone:
    @staticmethod
    def found(source: str, content: str, root: str = "file://host/docs") -> Document:
        return Document(source=source, text=content, root=root)

    async def test_is_deleted_with_its_chunks_where_it_was_found(self, house: House, project: str) -> None:
        await ingested(house, project, self.found(SOURCE, text("seal", 450)))
        (became,) = await ingested(house, project, Document(source=SOURCE, gone=True, root="file://host/docs"))
        assert became.status == "deleted"
        assert await kept(house, project) == (None, "", set())
        async with house.superuser() as connection:
            assert await connection.fetchval("SELECT count(*) FROM vectors WHERE project = $1", project) == 0
        (again,) = await ingested(house, project, Document(source=SOURCE, gone=True, root="file://host/docs"))
        assert again.status == "unchanged"

    async def test_is_not_deleted_where_another_found_it(self, house: House, project: str) -> None:
        for root in ("file://other/docs", None):
            (became,) = await ingested(house, project, self.found(SOURCE, text("seal", 1)))
            (became,) = await ingested(house, project, Document(source=SOURCE, gone=True, root=root))
            assert became.status == "unchanged"
            assert (await kept(house, project))[0] is not None

    async def test_and_was_killed_on_the_way_goes_when_it_is_asked_for_again(
        self, house: House, project: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await ingested(house, project, self.found(SOURCE, text("seal", 450)))
        apply, steps = house.committer.apply, 0

        async def killed(step: CommitPlan) -> CommitReply:
            nonlocal steps
            steps += 1
            if steps == 2:
                raise Transient("killed")
            return await apply(step)

        gone = Document(source=SOURCE, gone=True, root="file://host/docs")
        with monkeypatch.context() as patch:
            patch.setattr(house.committer, "apply", killed)
            assert (await reply(house, house.standing(project, principal="administrator"), gone)).refusal is not None
        assert (await kept(house, project))[0] is not None
        (became,) = await ingested(house, project, gone)
        assert became.status == "deleted"
        assert await kept(house, project) == (None, "", set())


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

    async def test_is_written_down_and_announced_with_every_batch(self, house: House, project: str) -> None:
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


async def test_what_nobody_vouches_for_has_no_integrity_until_somebody_does(house: House, project: str) -> None:
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

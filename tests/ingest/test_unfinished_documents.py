"""Documents whose ingest was interrupted, and documents in parts of bytes."""

import asyncio
import base64
import hashlib
import json
import threading
from typing import Any

import pytest
from ingest.document_records import SOURCE, document, ingested, killed_in_second_step, reply, stored_document, text
from ingest.pdf_files import paper
from memory_service.house import House

from counterpoint.memory.commit import pipeline
from counterpoint.memory.ingest import documents
from counterpoint.memory.ingest.readers import pdf, reader_process
from counterpoint.proto.errors import Transient
from counterpoint.proto.ids import document_id
from counterpoint.proto.ingest import Document, PutPart, PutReply
from counterpoint.proto.messages import Blob


class TestUnfinishedDocument:
    @pytest.mark.parametrize("old", [None, "valve"])
    async def test_keeps_the_old_record_until_it_is_ingested_again(
        self, house: House, project: str, monkeypatch: pytest.MonkeyPatch, old: str | None
    ) -> None:
        if old is not None:
            await ingested(house, project, document(text(old)))
        known, _, _ = await stored_document(house, project)
        origin = house.standing(project, principal="administrator")
        with killed_in_second_step(house, monkeypatch):
            refusal = (await reply(house, origin, document(text("seal")))).refusal
        assert refusal is not None
        assert refusal.kind == "transient"
        record, written, _ = await stored_document(house, project)
        assert record == known
        assert "The seal of pump 199 " in written
        assert "The seal of pump 200 " not in written
        house.restart()
        (became,) = (await reply(house, origin, document(text("seal")))).documents
        assert (became.status, became.chunks) == ("added" if old is None else "replaced", 450)
        record, written, versions = await stored_document(house, project)
        assert record is not None
        assert record["sha256"] != (known or {}).get("sha256")
        assert written == text("seal")
        assert versions == {1 if old is None else 2}
        assert (await house.verify(project))["ok"]

    @pytest.mark.parametrize("old", [None, "valve"])
    async def test_is_deleted_by_the_next_process_if_it_was_new(
        self, house: House, project: str, monkeypatch: pytest.MonkeyPatch, old: str | None
    ) -> None:
        await ingested(house, project, Document(source="other.md", text="Stays."))
        if old is not None:
            await ingested(house, project, document(text(old)))
        origin = house.standing(project, principal="administrator")
        with killed_in_second_step(house, monkeypatch):
            assert (await reply(house, origin, document(text("seal")))).refusal is not None
        before = await stored_document(house, project)
        house.restart()
        await house.ingest.delete_orphans()
        after = await stored_document(house, project)
        assert "The seal of pump 199 " in before[1]
        assert after[1] == ("Stays." if old is None else before[1])
        (became,) = await ingested(house, project, document(text("seal")))
        assert (became.status, became.chunks) == ("added" if old is None else "replaced", 450)
        assert became.embedded == 50

    async def test_that_is_refused_leaves_the_previous_version_unchanged(self, house: House, project: str) -> None:
        await ingested(house, project, document(text("valve")))
        before = await stored_document(house, project)
        (became,) = await ingested(house, project, Document(source=SOURCE, text=text("seal"), metadata={"a": "\0"}))
        assert (became.status, became.problem) == (
            "refused",
            f"documents/{document_id(SOURCE)} contains a NUL character",
        )
        assert await stored_document(house, project) == before

    async def test_the_previous_version_can_be_restored(
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
        assert (await stored_document(house, project))[1] == text("valve")


async def test_documents_that_hold_their_readers_up_delay_no_text(
    house: House, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than documents are ingested at a time, and than there are threads."""
    gate, at_once, entered = threading.Event(), list[bool](), threading.Semaphore(0)
    free = threading.BoundedSemaphore(reader_process.READERS)

    def hangs(kind: str, content: bytes) -> reader_process.ReaderResult:
        at_once.append(free.acquire(blocking=False))
        entered.release()
        gate.wait()
        free.release()
        return reader_process.ReaderResult(pages=("x",))

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


class TestBytes:
    """Documents of bytes, which memory reads itself and judges like texts."""

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

    async def test_of_a_pdf_are_found_by_page_and_pages_without_text_are_named(
        self, house: House, project: str
    ) -> None:
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
        assert (await stored_document(house, project))[1] == said

    async def test_that_raise_an_unexpected_error_cost_no_other_document(
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

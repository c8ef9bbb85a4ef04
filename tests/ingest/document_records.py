"""Documents for ingest, and the records of them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from memory_service.house import House
from memory_service.leaves import leaf_bodies

from counterpoint.memory.ingest import documents
from counterpoint.memory.record.plan import CommitPlan
from counterpoint.proto.errors import Transient
from counterpoint.proto.ingest import Document, DocumentResult, IngestReply, IngestRequest
from counterpoint.proto.memory import CommitReply, Origin

SOURCE = "runbooks/pumps.md"


def text(word: str, sections: int = documents.STEP_WRITES * 2 + 50) -> str:
    """A document of as many chunks as sections."""
    return "\n\n".join(f"# Pump {n}\n\nThe {word} of pump {n} is checked." for n in range(sections))


async def reply(house: House, origin: Origin, *documents: Document) -> IngestReply:
    """Ingest documents, and return the reply of memory."""
    request = IngestRequest(origin=origin, documents=documents)
    return IngestReply.model_validate_json(await house.door.ingest("router", request.model_dump_json().encode()))


async def ingested(house: House, project: str, *documents: Document) -> tuple[DocumentResult, ...]:
    """Ingest documents as an administrator, and return the result of each."""
    answer = await reply(house, house.standing(project, principal="administrator"), *documents)
    assert answer.refusal is None, answer.refusal
    return answer.documents


@contextmanager
def killed_in_second_step(house: House, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the second commit of the block fail as if the process had been killed."""
    apply, steps = house.committer.apply, 0

    async def killed(step: CommitPlan) -> CommitReply:
        nonlocal steps
        steps += 1
        if steps == 2:
            raise Transient("killed")
        return await apply(step)

    with monkeypatch.context() as patch:
        patch.setattr(house.committer, "apply", killed)
        yield


def document(content: str) -> Document:
    """A document under the one source of these tests."""
    return Document(source=SOURCE, text=content)


async def stored_document(house: House, project: str) -> tuple[dict[str, Any] | None, str, set[int]]:
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

"""Documents under quarantine: kept, not found, and found as soon as they are ingested after their release."""

import base64
import hashlib
import re

import pytest
from access.sensitive_values import CARD, GENERIC, KEY, MAIL, release, released_by, tables_with
from ingest.document_records import SOURCE, document, ingested, stored_document
from memory_service.house import House

from counterpoint.proto.ingest import Document, PutPart, PutReply
from counterpoint.proto.messages import PART_BYTES, Blob

GUIDE = f"# Client\n\nIts setting is\n{GENERIC}\nand no other.\n"


async def uploaded(house: House, project: str, text: str) -> PutReply:
    """Return the reply of memory to the upload of a text of one part."""
    content = text.encode()
    assert len(content) <= PART_BYTES
    origin = house.standing(project, principal="administrator")
    part = PutPart(origin=origin, sha256=hashlib.sha256(content).hexdigest(), bytes=len(content), part=0)
    whole = PutPart.model_validate({**part.model_dump(mode="json"), "content": base64.b64encode(content)})
    return PutReply.model_validate_json(await house.door.put("router", whole.model_dump_json().encode()))


async def test_a_quarantined_document_is_kept_and_not_found_until_its_release(house: House, project: str) -> None:
    (first,) = await ingested(house, project, document("# Client\n\nIt has a setting.\n"))
    assert (first.status, first.chunks) == ("added", 1)
    (held,) = await ingested(house, project, document(GUIDE))
    assert (held.status, held.chunks) == ("quarantined", 0)
    assert "in line 4" in (held.problem or "")
    record, text, _ = await stored_document(house, project)
    assert record is not None
    assert (record["quarantined"], record["kinds"], text) == (True, ["generic_api_key"], "")
    (again,) = await ingested(house, project, document(GUIDE))
    assert (again.status, again.problem) == ("quarantined", held.problem)

    found = re.search(r"fingerprint ([0-9a-f]{16})", held.problem or "")
    assert found is not None
    await house.apply("router", released_by(house, project), writes=(release(found[1]),))
    (let_go,) = await ingested(house, project, document(GUIDE))
    assert (let_go.status, let_go.chunks) == ("replaced", 1)
    record, text, _ = await stored_document(house, project)
    assert GENERIC in text
    assert "quarantined" not in (record or {})


async def test_the_text_of_a_quarantined_document_is_kept_as_a_blob(house: House, project: str) -> None:
    await ingested(house, project, document(GUIDE))
    record, _, _ = await stored_document(house, project)
    blob = Blob.model_validate((record or {})["blob"])
    async with house.superuser() as connection:
        content = await connection.fetchval(
            "SELECT string_agg(content, '' ORDER BY part) FROM blob_parts WHERE project = $1 AND sha256 = $2",
            project,
            bytes.fromhex(blob.sha256),
        )
    assert bytes(content).decode() == GUIDE


async def test_a_blocked_document_is_refused_with_the_line(house: House, project: str) -> None:
    (refused,) = await ingested(house, project, document(f"# Keys\n\n{KEY}\n"))
    assert refused.status == "refused"
    assert "an AWS access key" in (refused.problem or "")
    assert "in line 3" in (refused.problem or "")
    assert await stored_document(house, project) == (None, "", set())


async def test_redacted_values_are_in_no_table_and_a_second_ingest_is_unchanged(house: House, project: str) -> None:
    text = f"# Refunds\n\nAsk {MAIL}. The card was {CARD}.\n\n" * 3
    given = Document(source=SOURCE, text=text, title=f"For {MAIL}", metadata={"by": MAIL})
    (added,) = await ingested(house, project, given)
    assert added.status == "added"
    assert await tables_with(house, project, MAIL) == await tables_with(house, project, CARD) == set()
    record, chunks, _ = await stored_document(house, project)
    assert "Ask [redacted:email]. The card was [redacted:card]." in chunks
    assert record is not None
    assert (record["title"], record["metadata"]) == ("For [redacted:email]", {"by": "[redacted:email]"})
    (again,) = await ingested(house, project, given)
    assert (again.status, again.embedded) == ("unchanged", 0)


@pytest.mark.parametrize("source", [f"https://x.example/a?key={KEY}", f"mail of {MAIL}", f"card {CARD}"])
async def test_a_source_is_a_name_that_nothing_can_be_redacted_in(house: House, project: str, source: str) -> None:
    (refused,) = await ingested(house, project, Document(source=source, text="# A\n\nNothing in it.\n"))
    assert refused.status == "refused"
    assert "source contains what looks like" in (refused.problem or "")
    for value in (KEY, MAIL, CARD):
        assert await tables_with(house, project, value) == set()


async def test_an_uploaded_text_is_forgotten_when_the_document_does_not_hold_all_of_it(
    house: House, project: str
) -> None:
    plain, mail = "# A\n\nNothing in it.\n", f"# A\n\nAsk {MAIL}.\n"
    for text, left in ((plain, 1), (mail, 0)):
        reply = await uploaded(house, project, text)
        assert reply.blob is not None, reply
        (added,) = await ingested(house, project, Document(source=f"{left}.md", blob=reply.blob))
        assert added.status == "added"
        async with house.superuser() as connection:
            count = await connection.fetchval(
                "SELECT count(*) FROM blob_parts WHERE sha256 = $1", bytes.fromhex(reply.blob.sha256)
            )
        assert count == left
    refused = await uploaded(house, project, f"# A\n\n{KEY}\n")
    assert refused.refusal is not None
    assert refused.refusal.code == "sensitive"

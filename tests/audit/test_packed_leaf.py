"""A packed leaf has the text that was hashed, in a fraction of the bytes; the independent script reads it too."""

import hashlib
import json
import uuid
import zlib
from typing import Any

import pytest
from audit.audit_log import Log, a_log
from audit.test_columns import VERIFIER
from hypothesis import given
from hypothesis import strategies as st
from memory_service.databases import template_server

from counterpoint.memory.audit.leaf_body import text_hash
from counterpoint.memory.audit.packed_leaf import leaf_text, packed_leaf
from counterpoint.memory.record import packed_text
from counterpoint.memory.record.answers import answers_text
from counterpoint.memory.record.answers import packed as packed_answers
from counterpoint.memory.record.canonical import canonical

PLACED = (3, 2**40, 1_795_751_558_441_991)
IDS = st.one_of(
    st.uuids().map(str),
    st.uuids().map(lambda each: f"task:{each}"),
    st.binary(min_size=16, max_size=16).map(lambda each: f"doc-{each.hex()}-00001"),
    st.binary(min_size=32, max_size=32).map(bytes.hex),
    st.text().map(text_hash),
    st.text(alphabet='\x00\x01\x02\x03\\"\n é-_AZaz09', max_size=50),
)
BODIES = st.dictionaries(st.text(max_size=5), st.lists(st.one_of(IDS, st.integers(), st.none())), min_size=1)


def stored(body: str, placed: tuple[int, int, int] = PLACED) -> bytes:
    """The column as the database fills it."""
    packed = packed_leaf(body)
    assert packed is not None
    return b"".join(each.to_bytes(8, "big", signed=True) for each in placed) + packed


def whole(body: str, placed: tuple[int, int, int] = PLACED) -> str:
    return f'{{"placed":[{placed[0]},{placed[1]},{placed[2]}],{body[1:]}'


def by_script(body: str | None, packed: bytes | None) -> str | None:
    row = {"body": body, "packed": None if packed is None else f"\\x{packed.hex()}"}
    unpacked: str | None = VERIFIER.leaf_of(row)
    return unpacked


def a_leaf() -> str:
    ids = [str(uuid.uuid5(uuid.NAMESPACE_OID, str(n))) for n in range(30)]
    writes = [["actions", each, 1, text_hash(each), 0] for each in ids[:14]]
    sent = [[each, "counterpoint.decision.made.v1", n, 1] for n, each in enumerate(ids[14:28])]
    stamps = [[0, "developer", 1, 1, 1], [0, "decisions.orders.developer", [], 1, 1, None, None, False, False]]
    return canonical({"commit": ids[28], "writes": writes, "messages": sent, "stamps": stamps, "tasks": [ids[29]]})


@given(BODIES)
def test_the_text_is_the_one_that_was_packed(body: dict[str, Any]) -> None:
    text = canonical(body)
    packed = stored(text)
    assert leaf_text(None, packed) == by_script(None, packed) == whole(text)


def test_a_leaf_takes_little_more_than_its_ids_and_hashes() -> None:
    text = a_leaf()
    assert len(stored(text)) < 14 * 32 + 30 * 16 + 250 < len(text) / 2


def test_a_damaged_leaf_is_an_empty_text() -> None:
    packed, text = stored(a_leaf()), whole(a_leaf())
    for damaged in (b"", packed[:20], packed[:-1], packed + b"\0", packed[:24] + b"\xff" + packed[25:], packed[:30]):
        assert leaf_text(None, damaged) == ""
    assert leaf_text(text, packed) == by_script(text, packed) == ""
    assert by_script(None, packed[:-1]) == by_script(None, packed + b"\0") == ""
    assert leaf_text(text, None) == by_script(text, None) == text
    assert leaf_text(None, None) is None
    assert by_script(None, None) is None


def test_an_erasure_is_stored_as_text() -> None:
    assert packed_leaf(canonical({"erased": {"leaves": [1], "kept": []}, "writes": []})) is None
    assert packed_leaf(canonical({"step": '"erased":{'})) is not None


@given(BODIES)
def test_answers_are_read_in_every_form_that_a_release_stored(body: dict[str, Any]) -> None:
    text = canonical(body)
    rows: list[dict[str, Any]] = [
        {"answers": text, "packed": None},
        {"answers": None, "packed": zlib.compress(text.encode())},
        {"answers": None, "packed": packed_answers(text)},
    ]
    for row in rows:
        assert answers_text(row) == text
        column = None if row["packed"] is None else f"\\x{row['packed'].hex()}"
        assert VERIFIER.answers_of({**row, "packed": column}) == [text.encode()]
    assert packed_answers(None) is answers_text({"answers": None, "packed": None}) is None
    for row in rows[1:]:
        assert answers_text({"answers": text, "packed": row["packed"]}) == ""
        assert answers_text({"answers": None, "packed": row["packed"][:-1]}) != text
        assert answers_text({"answers": None, "packed": row["packed"] + b"\0"}) == ""


def test_shared_texts_are_those_of_the_script_and_never_change() -> None:
    assert VERIFIER.SHARED == packed_text._SHARED
    pins = {number: hashlib.sha256(text).hexdigest()[:16] for number, text in VERIFIER.SHARED.items()}
    assert pins == {1: "973a1fcc54cbb0c8", 2: "195a7b06058df3d3"}


@pytest.fixture
async def log(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("packed")
    async with template_server(folder) as server, a_log(server, folder) as log:
        await log.story("t-1")
        await log.sign()
        yield log


async def test_leaves_of_both_forms_verify_and_only_commits_are_packed(log: Log) -> None:
    rows = await log.rows("SELECT kind, body, packed FROM audit")
    assert {row["kind"] for row in rows if row["packed"] is None} == {"refusal"}
    assert all((row["body"] is None) == (row["packed"] is not None) for row in rows)
    assert (await log.verify())["ok"]
    await log.as_text()
    assert await log.rows("SELECT FROM audit WHERE packed IS NULL AND body IS NOT NULL AND kind = 'commit'")
    assert (await log.verify())["ok"]


async def test_a_body_without_a_salt_is_not_an_erased_one(log: Log) -> None:
    first = (await log.rows("SELECT packed FROM audit ORDER BY arrival LIMIT 1"))[0]["packed"]
    body = json.loads(leaf_text(None, first) or "")
    placed = body.pop("placed")
    other = stored(canonical({**body, "principal": "mallory"}), tuple(placed))
    await log.run(f"UPDATE audit SET salt = NULL, packed = '\\x{other.hex()}' WHERE position = 1")
    assert (await log.verify())["broken"] == ["leaf 1 was changed"]

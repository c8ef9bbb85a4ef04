"""Read sets of deliveries and messages are bounded by their size, not by their number."""

import pytest

from counterpoint.memory.provenance.read_sets import OriginCache, Outline, ReadAnswer, ReadItem, ReadSetLost, ReadSets
from counterpoint.memory.record.stamps import Provenance
from counterpoint.proto.memory import Ref


def refs(count: int, name: str = "r") -> list[Ref]:
    return [Ref(store="chunks", id=f"{name}{number}", version=1) for number in range(count)]


def answers(count: int, name: str = "r") -> list[ReadAnswer]:
    return [ReadAnswer(b"", Outline("record", "list"), [ReadItem(ref, 0, 2) for ref in refs(count, name)])]


def key(message: str) -> tuple[str, str, int, int]:
    return ("developer", message, 1, 0)


def test_large_read_sets_push_out_the_oldest_and_small_ones_do_not() -> None:
    reads = ReadSets(100)
    for number in range(20):
        reads.note(key(f"small-{number}"), answers(3))
    assert all(reads.of(key(f"small-{number}"), 1).scores for number in range(20))
    reads.note(key("large"), answers(90))
    with pytest.raises(ReadSetLost):
        reads.of(key("small-0"), 1)
    assert len(reads.of(key("large"), 1).scores) == 90
    reads.note(key("larger"), answers(500))
    assert len(reads.of(key("larger"), 1).scores) == 500


def test_every_answer_counts_its_items_and_finished_ones_count_no_more() -> None:
    reads = ReadSets(300)
    for _ in range(50):
        reads.note(key("a"), answers(4))
    assert len(reads.of(key("a"), 50).scores) == 4
    reads.finish("developer", "a")
    reads.finish("developer", "a")
    reads.note(key("b"), answers(290, "s"))
    assert len(reads.of(key("b"), 1).scores) == 290
    with pytest.raises(ReadSetLost):
        reads.of(key("a"), 50)
    for _ in range(50):
        reads.note(key("c"), answers(4))
    with pytest.raises(ReadSetLost):
        reads.of(key("b"), 1)


def test_origins_are_bounded_by_the_read_sets_of_their_messages() -> None:
    origins = OriginCache(100)
    for number in range(10):
        origins.remember(f"m{number}", Provenance(refs=frozenset(refs(30, f"{number}-"))))
    assert [number for number in range(10) if origins.get(f"m{number}")] == [7, 8, 9]
    for _ in range(20):
        origins.remember("m9", Provenance())
    assert origins.get("m7") is not None

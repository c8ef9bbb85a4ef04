"""The tree is that of RFC 6962: every proof of every small tree, beside a tree as plain as the standard says it."""

import hashlib
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.memory.audit.tiles import WIDTH, Nodes, RightEdge, TileId, nodes, tiles_of
from counterpoint.memory.audit.tree import (
    EMPTY,
    Range,
    Subtree,
    complete_root,
    covering,
    inclusion,
    leaf_hash,
    node_hash,
    proof,
)

DATA = [bytes.fromhex(text) for text in (
    "", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")]  # fmt: skip
"""The leaves, and below the roots, of the test vectors of the Certificate Transparency log."""
ROOTS = (
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
)
SIZES = range(1, 71)


def naive(leaves: Sequence[bytes]) -> bytes:
    """The definition of RFC 6962, 2.1."""
    if not leaves:
        return hashlib.sha256().digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\0" + leaves[0]).digest()
    middle = next(1 << n for n in range(64) if 1 << n < len(leaves) <= 2 << n)
    return hashlib.sha256(b"\1" + naive(leaves[:middle]) + naive(leaves[middle:])).digest()


def leaves(size: int) -> list[bytes]:
    return [hashlib.sha256(str(n).encode()).digest() for n in range(size)]


def root_in(data: Sequence[bytes], subtree: Subtree) -> bytes:
    first = subtree.number << subtree.height
    return complete_root([leaf_hash(each) for each in data[first : first + (1 << subtree.height)]])


def root(data: Sequence[bytes]) -> bytes:
    """By the tiles, as the log makes it."""
    edge, full = RightEdge().extended([leaf_hash(each) for each in data])
    return edge.root(len(data), expanded(full))


def expanded(tiles: Mapping[TileId, bytes]) -> dict[TileId, Nodes]:
    return {place: nodes(tile) for place, tile in tiles.items()}


def test_the_roots_are_those_of_the_test_vectors() -> None:
    assert EMPTY.hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert tuple(root(DATA[:size]).hex() for size in range(1, 9)) == ROOTS


def test_the_paths_of_the_test_vectors() -> None:
    def path(index: int, size: int) -> list[str]:
        return [node.hex() for node in proof(inclusion(index, size), lambda subtree: root_in(DATA, subtree))]

    assert path(0, 1) == []
    assert path(0, 8) == [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ]
    assert path(5, 8)[0] == "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b"


def includes(root: bytes, size: int, index: int, leaf: bytes, path: Sequence[bytes]) -> bool:
    """Verify a path as in RFC 9162, 2.1.3.2: it leads from the lowest node `leaf` at `index` to the root."""
    if not 0 <= index < size:
        return False
    place, last, node = index, size - 1, leaf
    for sibling in path:
        if last == 0:
            return False
        if place & 1 or place == last:
            node = node_hash(sibling, node)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            node = node_hash(node, sibling)
        place, last = place >> 1, last >> 1
    return last == 0 and node == root


@pytest.mark.parametrize("size", SIZES)
def test_every_leaf_is_proved_and_nothing_else_is(size: int) -> None:
    data = leaves(size)
    whole = root(data)
    assert whole == naive(data)
    for index in range(size):
        path = proof(inclusion(index, size), lambda subtree: root_in(data, subtree))
        leaf = leaf_hash(data[index])
        assert includes(whole, size, index, leaf, path)
        assert not includes(whole, size, index, leaf_hash(b"other"), path)
        assert not includes(EMPTY, size, index, leaf, path)
        assert not includes(whole, size, index, leaf, [*path, EMPTY])
        assert not includes(whole, size, size, leaf, path)
        assert not path or not includes(whole, size, index, leaf, path[:-1])
        assert size == 1 or not includes(whole, size, (index + 1) % size, leaf, path)


def test_a_proof_of_a_missing_leaf_is_an_error() -> None:
    for size in (0, 3):
        with pytest.raises(ValueError, match="the leaf does not exist"):
            inclusion(size, size)


@given(first=st.integers(0, 5000), length=st.integers(1, 5000))
def test_subtrees_cover_a_range_without_gap(first: int, length: int) -> None:
    at = first
    for height, number in covering(Range(first, first + length)):
        assert number << height == at
        at += 1 << height
    assert at == first + length


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(0, 700), min_size=1, max_size=5), st.data())
def test_tiles_hold_the_tree_however_it_grew(steps: list[int], choose: st.DataObject) -> None:
    """Also one that grew beyond 65,536 leaves in spirit: tiles of level 1 are those of level 0 once more."""
    data = leaves(sum(steps))
    edge, kept, at = RightEdge(), dict[TileId, bytes](), 0
    for step in steps:
        edge, filled = edge.extended([leaf_hash(each) for each in data[at : at + step]])
        at += step
        assert not set(filled) & set(kept)
        kept |= filled
    assert {place for place in kept if place.level == 0} == {TileId(0, n) for n in range(len(data) // WIDTH)}
    if data:
        size = choose.draw(st.integers(1, len(data)))
        needed = edge.missing(tiles_of([Range(0, size)]))
        assert edge.root(size, expanded({place: kept[place] for place in needed})) == naive(data[:size])


def test_a_third_level_begins_where_the_second_is_full() -> None:
    size = WIDTH * WIDTH + 300
    data = leaves(size)
    edge, kept = RightEdge().extended([leaf_hash(each) for each in data])
    assert TileId(1, 0) in kept
    for index in (0, 255, 65_535, 65_536, size - 1):
        parts = inclusion(index, size)
        full = expanded({place: kept[place] for place in edge.missing(tiles_of(parts))})
        path = proof(parts, lambda subtree, full=full: edge.root_of(subtree, full))
        assert includes(edge.root(size, expanded(kept)), size, index, leaf_hash(data[index]), path)

"""The tree over the leaves of the log (RFC 6962): hashes, the parts of a proof, and its verification. Pure.

Complete subtrees are identified by their height and their number from the left; a proof is a list of ranges of leaves,
the root of each of which is computed from such subtrees.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

EMPTY = hashlib.sha256().digest()
"""Root of no leaves."""


class Subtree(NamedTuple):
    """The complete tree over the leaves from `number << height` on, `1 << height` of them."""

    height: int
    number: int


class Range(NamedTuple):
    """Leaves from `first` up to but without `end`; a part that the tree's own shape cuts out."""

    first: int
    end: int


def leaf_hash(data: bytes) -> bytes:
    """Return the tree's lowest node over one leaf."""
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the node over two nodes."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def paired(hashes: Sequence[bytes]) -> list[bytes]:
    """Return the nodes over an even number of neighbours: the next level of a complete tree."""
    sha256 = hashlib.sha256
    return [sha256(b"\x01" + left + right).digest() for left, right in zip(hashes[::2], hashes[1::2], strict=True)]


def complete_root(hashes: Sequence[bytes]) -> bytes:
    """Return the root over a number of nodes that is a power of two."""
    while len(hashes) > 1:
        hashes = paired(hashes)
    return hashes[0]


def folded(roots: Iterable[bytes]) -> bytes:
    """Return the root of a range from the roots of its subtrees, from left to right."""
    root = b""
    for left in reversed(list(roots)):
        root = node_hash(left, root) if root else left
    return root or EMPTY


def covering(leaves: Range) -> list[Subtree]:
    """Return the complete subtrees of a range, from left to right."""
    found = []
    first, end = leaves
    while first < end:
        height = (end - first).bit_length() - 1
        if first:
            height = min(height, (first & -first).bit_length() - 1)
        found.append(Subtree(height, first >> height))
        first += 1 << height
    return found


def inclusion(index: int, size: int) -> list[Range]:
    """Return the subtrees of the inclusion proof of leaf `index` (from 0) in a tree of `size` leaves, from the leaf
    upwards."""
    if not 0 <= index < size:
        raise ValueError("the leaf does not exist")
    parts = []
    first, end = 0, size
    while end - first > 1:
        middle = first + _split(end - first)
        if index < middle:
            parts.append(Range(middle, end))
            end = middle
        else:
            parts.append(Range(first, middle))
            first = middle
    return parts[::-1]


def proof(parts: Sequence[Range], root_of: Callable[[Subtree], bytes]) -> list[bytes]:
    """Return the hashes of a proof, from the roots of the subtrees of its ranges."""
    return [folded(root_of(subtree) for subtree in covering(part)) for part in parts]


def _split(size: int) -> int:
    """Return the largest power of two below `size`."""
    return 1 << ((size - 1).bit_length() - 1)

"""Bodies of leaves as they are stored.

The body of a commit's leaf is packed: `placed` as three integers of 8 bytes, and the rest as a packed text. Leaves of
erasures, which the database reads itself, and of refusals are stored as text.
"""

import struct

from counterpoint.memory.record.packed_text import Shared, pack, unpack

_ERASURE = '"erased":{'
"""Part of the leaf of an erasure alone: in a text the quotes would be escaped."""
_PLACED = struct.Struct(">qqq")


def packed_leaf(body: str) -> bytes | None:
    """Return the body of a commit's leaf as it is stored, without `placed`, which the database puts before it.

    Returns None for one that is stored as text.
    """
    return None if _ERASURE in body else pack(body, Shared.LEAF)


def leaf_text(body: str | None, packed: bytes | None) -> str | None:
    """Return the body of a leaf from the columns of its row, None if it was erased.

    What cannot be unpacked is an empty text, which no leaf attests.
    """
    if packed is None:
        return body
    try:
        records, messages, at = _PLACED.unpack_from(packed)
        rest = unpack(packed[_PLACED.size :])
    except (ValueError, struct.error):
        return ""
    return "" if body is not None else f'{{"placed":[{records},{messages},{at}],{rest[1:]}'

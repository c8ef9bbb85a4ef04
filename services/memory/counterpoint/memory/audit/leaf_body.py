"""Bodies of leaves: compact as they are stored, expanded as they are read.

In a compact body each text that recurs is listed once. `tasks` lists task ids; `stamps` lists the stamps of rows, which
begin with the index of a task. A write and a message end with the index of their stamps. Hashes are base64url. A
message that repeats a record has the index of its write instead. The reply of a step in the inbox follows from its
status. Leaves of earlier releases have all of it in each row, and hashes in hex.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from counterpoint.memory.record.canonical import canonical

_ROWS = ("writes", "messages")


def inbox_reply(status: str) -> str:
    """Return the part of a reply that the inbox stores. The rest is in the leaf of the commit."""
    return canonical({"status": status})


class CompactRows:
    """Rows of one leaf in compact form, and the lists that they refer to."""

    def __init__(self, leaf: Mapping[str, Any] | None = None) -> None:
        """Continue a compact leaf, or begin one."""
        self._tasks = {task: n for n, task in enumerate(leaf["tasks"] if leaf else ())}
        self._stamps = {_hashable(stamps): n for n, stamps in enumerate(leaf["stamps"] if leaf else ())}

    def write(self, store: str, record_id: str, version: int, sha256: bytes, stamps: Sequence[Any]) -> list[Any]:
        """Return a write."""
        return [store, record_id, version, encoded(sha256), self._index(stamps)]

    def message(
        self, message_id: str, message_type: str, body: str, repeated: int | None, stamps: Sequence[Any]
    ) -> list[Any]:
        """Return a message; `repeated` is the index of the write with the same body."""
        return [message_id, message_type, text_hash(body) if repeated is None else repeated, self._index(stamps)]

    @property
    def lists(self) -> dict[str, list[Any]]:
        """The lists, as fields of the leaf."""
        return {"tasks": list(self._tasks), "stamps": list(self._stamps)}

    def _index(self, stamps: Sequence[Any]) -> int:
        task, *others = stamps
        at = None if task is None else self._tasks.setdefault(task, len(self._tasks))
        return self._stamps.setdefault(_hashable([at, *others]), len(self._stamps))


def expanded(leaf: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a leaf in the form of earlier releases. Raises `LookupError`, `TypeError` or `ValueError` for
    one that memory does not write."""
    if "stamps" not in leaf:
        return dict(leaf)
    stamps = [[None if task is None else leaf["tasks"][task], *others] for task, *others in leaf["stamps"]]
    writes = [[*key, _hex(sha256), stamps[index]] for *key, sha256, index in leaf["writes"]]
    messages = [
        [message_id, kind, writes[sha256][3] if isinstance(sha256, int) else _hex(sha256), stamps[index]]
        for message_id, kind, sha256, index in leaf["messages"]
    ]
    reply = hashlib.sha256(inbox_reply(leaf["inbox"][2]).encode()).hexdigest()
    read_set = leaf["read_set"] and [leaf["read_set"][0], *map(_hex, leaf["read_set"][1:])]
    return {**leaf, "writes": writes, "messages": messages, "inbox": [*leaf["inbox"], reply], "read_set": read_set}


def encoded(sha256: bytes) -> str:
    """Return a hash as base64url without padding."""
    return base64.urlsafe_b64encode(sha256).rstrip(b"=").decode()


def text_hash(text: str) -> str:
    """Return the hash of a text, encoded."""
    return encoded(hashlib.sha256(text.encode()).digest())


def _hex(sha256: str) -> str:
    return base64.urlsafe_b64decode(sha256 + "=").hex()


def _hashable(stamps: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(tuple(each) if isinstance(each, list) else each for each in stamps)

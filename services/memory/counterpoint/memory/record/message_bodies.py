"""Bodies of messages in the log: what a record of the same commit has too is stored there alone.

A body that is the body of a record is stored as a reference to it. Of another one the large fields are left out that a
record has, under any name. The bus, readers and the audit log get whole bodies.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from counterpoint.memory.record.canonical import canonical

_NONE = "{}"
"""Text of a body of which a record has everything. Without a reference it is the body of an erased message."""
_LOST = '{"lost":true}'
"""Body of a message whose records are not there."""
_LARGE = 100
"""Length of a field in canonical JSON, in characters, from which it is replaced by a reference; of a text without
escapes."""


class StoredBody(NamedTuple):
    """A body as it is stored: the `text` without what `records`, indexes of writes of the commit, have.

    `parts` is a list, as JSON, of fields that are left out, each with the place of its record in `records` and the name
    of the field there; None if the record has the whole body.
    """

    text: str
    records: tuple[int, ...] | None = None
    parts: str | None = None


class CommitTexts:
    """Bodies of the records that a commit writes, None for one that messages cannot refer to."""

    def __init__(self, bodies: Sequence[str | None]) -> None:
        self._bodies = bodies
        self._whole = {body: n for n, body in enumerate(bodies) if body is not None}
        self._fields: dict[int, dict[str, str]] = {}

    def stored(self, body: str, data: Mapping[str, Any]) -> StoredBody:
        """Return the body of a message, `data` in canonical JSON, as it is stored."""
        if body in self._whole:
            return StoredBody(_NONE, (self._whole[body],))
        if len(body) < 2 * _LARGE or not self._whole:
            return StoredBody(body)
        found = {}
        for name, value in data.items():
            if _may_be_large(value) and (source := self._field(canonical(value))) is not None:
                found[name] = source
        rest = {name: value for name, value in data.items() if name not in found}
        if not found or not rest:
            return StoredBody(body)
        records = sorted({index for index, _ in found.values()})
        parts = [[name, records.index(index), field] for name, (index, field) in found.items()]
        return StoredBody(canonical(rest), tuple(records), canonical(parts))

    def _field(self, text: str) -> tuple[int, str] | None:
        """Return the index of a record and the name of its field with a large value of this text, if there is one."""
        if len(text) < _LARGE:
            return None
        for index, body in enumerate(self._bodies):
            if body is not None and text in body and (field := self._large_fields(index, body).get(text)) is not None:
                return index, field
        return None

    def _large_fields(self, index: int, body: str) -> dict[str, str]:
        """Return the names of the large fields of a record by their texts."""
        if index not in self._fields:
            values = ((name, value) for name, value in json.loads(body).items() if _may_be_large(value))
            self._fields[index] = {canonical(value): name for name, value in values}
        return self._fields[index]


def _may_be_large(value: Any) -> bool:
    return isinstance(value, dict | list) or (isinstance(value, str) and len(value) + len('""') >= _LARGE)


def whole_body(row: Mapping[str, Any]) -> str:
    """Return the body of a row of the log.

    The row has `body`, `records`, `parts`, and the bodies of its records as JSON in `repeated`.
    """
    if row["records"] is None and row["parts"] is None:
        return str(row["body"])
    try:
        bodies = json.loads(row["repeated"])
        if len(bodies) != len(row["records"]):
            return _LOST
        if row["parts"] is None:
            (body,) = bodies
            return canonical(body)
        fields = {name: bodies[place][field] for name, place, field in json.loads(row["parts"])}
        return canonical({**json.loads(row["body"]), **fields})
    except (ValueError, LookupError, TypeError):
        return _LOST

"""The records of the ledger as this process last wrote them, so that calls are settled without reading them.

Another process may have written them since. The versions of a commit that rests on them then do not match: it raises
`Conflict`, and the records are read.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from counterpoint.proto.memory import CommitReply, Write

_LIMIT = 1000
RecordKey = tuple[str, str]
"""Store and id."""


@dataclass(frozen=True, slots=True)
class WrittenRecord:
    """A record as it was written."""

    store: str
    id: str
    version: int
    body: dict[str, Any]


class WrittenRecords:
    """Records by project, store and id; emptied when `_LIMIT` of them are kept."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str, str], WrittenRecord] = {}

    def version(self, project: str, store: str, record_id: str) -> int:
        """Return the version that was last written, 0 if it is not known."""
        written = self._records.get((project, store, record_id))
        return written.version if written else 0

    def all_of(self, project: str, keys: Collection[RecordKey]) -> dict[RecordKey, WrittenRecord] | None:
        """Return records by store and id; None unless all of them are known."""
        known = {key: written for key in keys if (written := self._records.get((project, *key)))}
        return known if len(known) == len(keys) else None

    def keep(self, project: str, writes: Iterable[Write], reply: CommitReply) -> None:
        """Keep what a commit wrote, at the versions of its reply, unless a later one is known."""
        for write in writes:
            version = reply.versions.get(f"{write.store}/{write.id}", 0)
            if write.body is None or version <= self.version(project, write.store, write.id):
                continue
            if len(self._records) >= _LIMIT:
                self._records.clear()
            self._records[project, write.store, write.id] = WrittenRecord(write.store, write.id, version, write.body)

    def forget(self, project: str, keys: Iterable[RecordKey]) -> None:
        """Forget records that may have changed, or are not needed any more."""
        for key in keys:
            self._records.pop((project, *key), None)

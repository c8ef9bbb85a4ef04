"""Expected rows: the rows of the record according to the leaves of their commits, column by column.

A leaf begins with `placed`: the positions in its project's order before its first record and before its first message,
and the time of its transaction. So positions and times, which the database assigns, are attested like everything else.
Leaves of older releases have none: of their rows only content and stamps are compared.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_STAMPS = 5


def placed(leaf: Mapping[str, Any]) -> Iterator[list[Any]]:
    """A write of an expanded leaf: store, id, version, hash, stamps, and where present [place, changed, time]."""
    place = leaf.get("placed")
    for number, write in enumerate(leaf.get("writes", ()), 1):
        if place is None:
            yield [*write]
            continue
        stamps, own = write[4][:_STAMPS], write[4][_STAMPS:]
        seq = place[0] + number
        yield [*write[:4], stamps, [own[0], seq, own[1]] if own else [seq, None, place[2]]]


class LeafWrite(NamedTuple):
    """A record's version according to its leaf: the hash of its body, its stamps if the leaf has them, and its commit
    unless that was erased."""

    sha256: str
    stamps: list[Any] | None
    commit: str | None
    place: list[Any] | None = None


class ExpectedRows:
    """Expected rows of one project according to its leaves, as far as they have positions."""

    def __init__(self) -> None:
        self.older: set[str] = set()
        """Commits whose leaves have no positions."""
        self.cancelled: set[tuple[str, str]] = set()
        """Cancelled timers, each with its sender."""
        self._commits: set[str] = set()
        self._superseded: dict[tuple[str, str, int], int] = {}
        self._messages: dict[str, list[Any]] = {}
        self._inbox: dict[tuple[str, str, str], list[Any]] = {}
        self._read_sets: dict[str, list[Any] | None] = {}
        self._tasks: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)

    def take(self, leaf: Mapping[str, Any], commit: str, project: str, seq: int | None, at: int) -> str | None:
        """Take the expanded leaf of a commit or refusal and the columns of its row; return the differences of those."""
        place = leaf.get("placed")
        if place is None:
            self.older.add(commit)
            return None
        named = leaf.get("commit") or leaf.get("refusal")
        if (named, leaf.get("project"), place[2], place[0] + len(leaf.get("writes", ()))) != (commit, project, at, seq):
            return "is stored under another id, project, position or time"
        self._commits.add(commit)
        for store, record_id, version, _, _, (own, changed, _) in placed(leaf):
            self._superseded[store, record_id, version - 1] = changed or own
            if store == "tasks":
                self._tasks[record_id].append((changed or own, version))
        for number, (message_id, _, _, stamps) in enumerate(leaf.get("messages", ()), 1):
            sent = [place[1] + number, leaf["service"], leaf["message"], commit, stamps[6], stamps[7], place[2]]
            self._messages[message_id] = [sent, stamps[8], stamps[0]]
        self.cancelled.update((leaf["service"], timer) for timer in leaf.get("cancels", ()))
        if "inbox" in leaf:
            self._inbox[leaf["service"], leaf["message"], leaf["step"]] = [*leaf["inbox"], place[2]]
        if "read_set" in leaf:
            self._read_sets[commit] = leaf["read_set"] and [*leaf["read_set"], place[2]]
        return None

    def unknown(self, commit: str, erased: set[str]) -> bool:
        """Whether a commit has no leaf, neither an erased one nor one of an older release."""
        return commit not in self._commits and commit not in self.older and commit not in erased

    def superseded(self, store: str, record_id: str, version: int, seq: int | None) -> bool:
        """Whether a version was superseded by the next one at this position, as far as that is known."""
        return self._superseded.get((store, record_id, version), seq) == seq

    def sent(self, message_id: str, columns: list[Any], task_version: int | None, whole: bool) -> bool:
        """Whether a message is in the log as it was sent: `columns` are those of `take`.

        The task version of a workflow message is that of the last write before it, if the `whole` log is available to
        determine it, and 0 without a task.
        """
        known = self._messages.get(message_id)
        if known is None:
            return True
        expected, workflow, task = known
        version = None
        if workflow:
            version = max((v for place, v in self._tasks[task] if place < expected[0]), default=0)
        return bool(expected == columns and (version == task_version or (workflow and not whole)))

    def applied(self, consumer: str, message: str, step: str, columns: list[Any]) -> bool | None:
        """Whether a step is in the inbox as it was applied; None if no leaf contains it."""
        known = self._inbox.get((consumer, message, step))
        return None if known is None else known == columns

    def read(self, commit: str, columns: list[Any]) -> bool:
        """Whether a read set is stored as it was written; a commit without reads has none."""
        return self._read_sets.pop(commit, columns) == columns

    def unread(self) -> set[str]:
        """Return the commits whose read sets were not among those that were read."""
        return {commit for commit, columns in self._read_sets.items() if columns is not None}

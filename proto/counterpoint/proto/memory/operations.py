"""Operations on memory as a whole: rebuilds, re-embedding, take-back and erasure."""

from typing import Literal

from pydantic import Field

from counterpoint.proto.memory.request import Ref
from counterpoint.proto.messages import Id, Shape, Time


class Rebuild(Shape):
    """The progress of rebuilding a projection of the project; `start` begins a rebuild."""

    op: Literal["rebuild"] = "rebuild"
    tier: Literal["episodic", "graph"]
    start: bool = False


class Reembed(Shape):
    """The embedding models in use and the progress of re-embedding, after `act`.

    `begin` embeds with `model` while searches use the present one, `switch` searches with the new model once its
    vectors are complete, `rollback` returns to the previous model, `drop` deletes the vectors of the unused model.
    `switch` waits for the vector indexes of large projects unless `unindexed`.
    """

    op: Literal["reembed"] = "reembed"
    act: Literal["status", "begin", "switch", "rollback", "drop"] = "status"
    model: str | None = Field(default=None, min_length=1, max_length=210)
    unindexed: bool = False


class RestingItem(Ref):
    """A dependent version, `hops` away. `cited`: every hop is a citation or decision, not only a read."""

    hops: int
    cited: bool
    task_id: str | None = None
    at: Time


class MemoryRadius(Shape):
    """The versions that depend on an item, nearest first, and the tasks concerned. `truncated`: more exist."""

    item: Ref
    items: tuple[RestingItem, ...]
    tasks: tuple[str, ...]
    truncated: bool = False


class TakeBack(Shape):
    """A request to take back a record and the records that depend on it, from `version` on.

    Without a version, all of its versions, or for `rollback` those with its present content. `quarantine` hides them
    from every read, `rollback` restores the versions before them, `lift` undoes the take-back whose id is `id`. Records
    that only read it are unaffected; `cited_only` has no effect any more.
    """

    kind: Literal["quarantine", "rollback", "lift"]
    store: str = "quarantines"
    id: str
    version: int | None = Field(default=None, ge=1)
    reason: str = Field(min_length=1, max_length=2000)
    cited_only: bool = False

    @property
    def restores(self) -> bool:
        """Whether earlier versions are restored."""
        return self.kind == "rollback"


class TakenBack(TakeBack):
    """The result of a take-back: records hidden and restored by store, and the dependent tasks, whose records stay.

    `shared`: the item is in the shared project. `of`: the take-back that this one continues. `lifted`: it was undone.
    `others`: take-backs that still apply to records of a lifted one.
    """

    by: str
    at: Time
    out: dict[str, int] = {}
    restored: dict[str, int] = {}
    tasks: tuple[str, ...] = ()
    tasks_count: int = 0
    shared: bool = False
    of: Id | None = None
    lifted: bool = False
    others: tuple[Id, ...] = ()


class PreviewedRecord(Shape):
    """A record that a take-back would change: its present version, and the one that would be restored, if any."""

    store: str
    id: str
    version: int
    restored: int | None = None


class TakeBackPreview(Shape):
    """The result that a take-back would have now: counts by store, the first records, and the dependent tasks.

    `version` is the first version taken back. `truncated`: more records or tasks exist than are named.
    `other_projects` is the number of further projects in which something depends on an item of the shared one.
    """

    kind: Literal["quarantine", "rollback"]
    store: str
    id: str
    version: int
    out: dict[str, int] = {}
    restored: dict[str, int] = {}
    records: tuple[PreviewedRecord, ...] = ()
    tasks: tuple[str, ...] = ()
    tasks_count: int = 0
    other_projects: int = 0
    truncated: bool = False


class Erase(Shape):
    """A request to erase a project, a task, or a document by its source, with the records that cite it.

    With `shown` also the records that only read it.
    """

    scope: Literal["project", "task", "source"]
    what: str = Field(min_length=1, max_length=2000)
    reason: str = Field(min_length=1, max_length=2000)
    shown: bool = False


class ErasureResult(Erase):
    """The result of an erasure: records erased by store, and the number of records left that only read it."""

    state: Literal["erasing", "erased"]
    by: str
    at: Time
    gone: dict[str, int] = {}
    versions: int = 0
    shown_to: int = 0

"""What persons wish memory to take back or to forget, what came of it, and what rests on an item."""

from typing import Literal

from pydantic import Field

from counterpoint.proto.memory import Ref
from counterpoint.proto.messages import Id, Shape, Time


class RestingItem(Ref):
    """A version that rests on what was asked about, so many hops away. `cited`: what led there was cited or decided on
    all the way, and not only shown."""

    hops: int
    cited: bool
    task_id: str | None = None
    at: Time


class MemoryRadius(Shape):
    """All that rests on an item, nearest first, with what it was only shown to where that was asked for; `tasks` are
    those that it is about. `truncated`: there is more."""

    item: Ref
    items: tuple[RestingItem, ...]
    tasks: tuple[str, ...]
    truncated: bool = False


class TakeBack(Shape):
    """The wish that a record and what was learned from it be taken back, from `version` on: without one all of it, or
    for `rollback` as long as it has said what it says now.

    `quarantine` takes all of it out of every read, `rollback` puts what stood before in its place where there was
    something, `lift` undoes the quarantine or rollback whose id is `item`'s. What it was merely shown to is left alone;
    `cited_only` said so before, and has no effect any more.
    """

    kind: Literal["quarantine", "rollback", "lift"]
    store: str = "quarantines"
    id: str
    version: int | None = Field(default=None, ge=1)
    reason: str = Field(min_length=1, max_length=2000)
    cited_only: bool = False

    @property
    def restores(self) -> bool:
        """Whether it puts back what stood before."""
        return self.kind == "rollback"


class TakenBack(TakeBack):
    """What became of a wish: how many records of each store were taken out, how many were put back as they had been,
    and the tasks that rest on it, whose own records stay. `shared` when the item is one of the shared project, `of` the
    wish whose rest it is, `lifted` once it was undone. `others` are those that still stand about records of a lifted
    one."""

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


class Erase(Shape):
    """The wish that something be forgotten for good: all of a project, of a task, or of a document by its source; with
    all that rests on it by sources that were named, with `shown` also what it was merely shown to."""

    scope: Literal["project", "task", "source"]
    what: str = Field(min_length=1, max_length=2000)
    reason: str = Field(min_length=1, max_length=2000)
    shown: bool = False


class Erased(Erase):
    """What became of a wish: how many records of each store are gone, and how many it was merely shown to are left."""

    state: Literal["erasing", "erased"]
    by: str
    at: Time
    gone: dict[str, int] = {}
    versions: int = 0
    shown_to: int = 0

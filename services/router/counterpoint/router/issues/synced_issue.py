"""Synchronized issues: the record of one task's issue in one tracker, and that of a tracker's polls. Pure.

No text of a person is in them, so nothing that is written at a forge can stop a commit.
"""

from datetime import datetime, timedelta
from typing import Literal

from counterpoint.proto.ids import derived_id
from counterpoint.proto.messages import ProjectName, Shape, Time
from counterpoint.router.issues.merge import AgreedFields

STORE = "sync_cursors"
ASK_FOR = timedelta(days=14)
"""Time for which an issue without a cause is compared every hour, after its task has ended."""

SyncState = Literal["pending", "calling", "synced", "dead", "left"]


class ReadMark(Shape):
    """The newest comment that was read, by its last change and its id."""

    at: Time
    comment_id: int


class Progress(Shape):
    """Facts of an issue that calls have established.

    `card_sha256` is that of the text that people see. `seen_at` is the time of the issue's last change at the last
    comparison. `comments` are the ids of ours by purpose, also of those that were deleted. `todos` are the numbers of
    the issues of a plan's steps, by the steps' keys. `left`: the issue was deleted or moved to another repository, and
    is left alone.
    """

    number: int | None = None
    url: str | None = None
    fields: AgreedFields = AgreedFields()
    card_sha256: str | None = None
    comments: dict[str, int] = {}
    todos: dict[str, int] = {}
    read: ReadMark | None = None
    seen_at: Time | None = None
    watched: bool = True
    left: Literal["deleted", "moved"] | None = None


class SyncedIssue(Progress):
    """An issue and the work on it. `turn` counts planned calls, `attempt` those since the last success, `revision` the
    reasons to look at it. `begun` are the labels that calls without a known end may have put.

    `holder` makes the calls until `held_until`. `last_error` names the fault without the address of the forge.
    """

    tracker: str
    project: ProjectName
    task_id: str
    state: SyncState = "pending"
    turn: int = 1
    attempt: int = 1
    revision: int = 1
    begun: tuple[str, ...] = ()
    holder: str | None = None
    held_until: Time | None = None
    last_error: str | None = None
    created_at: Time

    @property
    def progress(self) -> Progress:
        """The facts of the issue alone."""
        return Progress.model_validate({name: getattr(self, name) for name in Progress.model_fields})

    @property
    def is_open(self) -> bool:
        """Whether a call is planned or under way."""
        return self.state in ("pending", "calling")

    def touched(self) -> "SyncedIssue":
        """Return the issue with one more reason to look at it; a new turn begins unless a call is planned already."""
        more = {"revision": self.revision + 1}
        if self.is_open or self.state == "left":
            return self.model_copy(update=more)
        return self.model_copy(update={**more, "state": "pending", "turn": self.turn + 1, "attempt": 1})

    def held(self, holder: str, until: datetime, labels: tuple[str, ...]) -> "SyncedIssue":
        """Return the issue while `holder` makes the calls, which may put `labels`."""
        begun = tuple(dict.fromkeys((*self.begun, *labels)))
        return self.model_copy(update={"state": "calling", "holder": holder, "held_until": until, "begun": begun})

    def synced(self, revision: int, progress: Progress) -> "SyncedIssue":
        """Return the issue after its calls for `revision` were made; a later one is due at once."""
        more = self.revision > revision and progress.left is None
        state = "left" if progress.left else "pending" if more else "synced"
        ended = {"state": state, "turn": self.turn + more, "attempt": 1, "last_error": None, "begun": ()}
        return self._after(progress, ended)

    def failed(self, error: str, progress: Progress) -> "SyncedIssue":
        """Return the issue with its next attempt planned; what the failed one has done is kept."""
        return self._after(progress, self._again(error, self.attempt + 1))

    def deferred(self, progress: Progress | None = None) -> "SyncedIssue":
        """Return the issue with the same attempt planned for later."""
        return self._after(progress or self, self._again(self.last_error, self.attempt))

    def died(self, error: str, progress: Progress) -> "SyncedIssue":
        """Return the issue after its last attempt."""
        return self._after(progress, {"state": "dead", "last_error": error})

    def _again(self, error: str | None, attempt: int) -> dict[str, object]:
        return {"state": "pending", "turn": self.turn + 1, "attempt": attempt, "last_error": error}

    def _after(self, progress: Progress, changes: dict[str, object]) -> "SyncedIssue":
        known = {name: getattr(progress, name) for name in Progress.model_fields}
        return self.model_copy(update={**known, "holder": None, "held_until": None, **changes})


class TrackerPoll(Shape):
    """The polls of a tracker. Issues were seen up to their change at `seen_until`, by the clock of the forge.

    All watched issues are compared at `reconcile_at`. `due_at` is the time of the next poll.
    """

    tracker: str
    turn: int = 1
    seen_until: Time
    reconcile_at: Time
    due_at: Time
    failures: int = 0
    last_error: str | None = None


def issue_id(tracker: str, task_id: str) -> str:
    """Return the id of the issue of a task in a tracker, which is also its mark at the forge."""
    return derived_id("issue", tracker, task_id)


def todo_id(issue: str, key: str) -> str:
    """Return the id of the issue of a plan's step, which is its mark at the forge. `issue` is the id of the plan's."""
    return derived_id("todo", issue, key)


def poll_id(tracker: str) -> str:
    """Return the id of the record of a tracker's polls."""
    return derived_id("tracker", tracker)

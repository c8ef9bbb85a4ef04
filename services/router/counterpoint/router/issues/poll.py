"""Polls of trackers: issues that have changed without a webhook, and every hour all that are still of interest.

The polls of a tracker are a chain of timers. It begins with the tracker's first issue, and again if it was broken.
"""

import hashlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import structlog
from cachetools import LRUCache

from counterpoint.client import Memory, delete, put, readable, record, send
from counterpoint.proto.issues import IssueDue, TrackerDue
from counterpoint.proto.memory import Commit, Item, List
from counterpoint.proto.messages import utc_now
from counterpoint.router.issues.calls import RateLimit
from counterpoint.router.issues.forge import Forge, ForgeError, ForgeIssue
from counterpoint.router.issues.sync import CLOCK_SKEW
from counterpoint.router.issues.synced_issue import STORE, SyncedIssue, TrackerPoll, poll_id
from counterpoint.router.issues.trackers import Tracker

log = structlog.get_logger()

RECONCILE = timedelta(hours=1)
BACKOFF_LIMIT_S = 3600.0
BROKEN_AFTER = timedelta(hours=2)
"""Time after which a poll that was due and did not happen is planned anew."""
_BATCH = 50
_SPACING = timedelta(milliseconds=250)
_PAGE = 200
_CHANGED = 100


class Polls:
    """The polls of `trackers` at their `forges`, which keep to their `limits`."""

    def __init__(
        self, trackers: Mapping[str, Tracker], forges: Mapping[str, Forge], limits: Mapping[str, RateLimit]
    ) -> None:
        self._trackers = trackers
        self._forges = forges
        self._limits = limits
        self._changed: LRUCache[tuple[str, int], tuple[ForgeIssue, ...]] = LRUCache(_CHANGED)

    def pause_s(self, tracker: Tracker) -> float:
        """Return the seconds for which a tracker's forge has asked for a pause."""
        return self._limits[tracker.name].remaining_s()

    async def on_due(self, message: TrackerDue, memory: Memory) -> Commit:
        """Plan the comparison of the issues that have changed, and the next poll."""
        item = await memory.get(STORE, poll_id(message.tracker))
        poll = record(item, TrackerPoll) if item else None
        if item is None or poll is None or poll.turn != message.turn:
            return Commit()
        tracker = self._trackers.get(message.tracker)
        if tracker is None or tracker.project != memory.project:
            return Commit(writes=(delete(item),))
        now = utc_now()
        try:
            changed = await self._changed_issues(tracker, item, poll)
        except ForgeError as error:
            failures = poll.failures + (error.pause_s is None)
            delay_s = error.pause_s or min(tracker.poll_s * 2.0 ** min(failures, 12), BACKOFF_LIMIT_S)
            log.warning("tracker.poll_failed", tracker=tracker.name, error=str(error))
            failed = poll.model_copy(update={"failures": failures, "last_error": str(error)})
            return _next(item, failed, now + timedelta(seconds=max(delay_s, tracker.poll_s)))
        await self._touch_changed(tracker, changed, memory)
        reconcile_at = poll.reconcile_at
        if now >= reconcile_at:
            await self._touch_watched(tracker, memory)
            reconcile_at = now + RECONCILE
        seen = max([poll.seen_until, *(issue.updated_at for issue in changed)])
        done = {"seen_until": seen, "reconcile_at": reconcile_at, "failures": 0, "last_error": None}
        return _next(item, poll.model_copy(update=done), now + timedelta(seconds=tracker.poll_s))

    async def _changed_issues(self, tracker: Tracker, item: Item, poll: TrackerPoll) -> tuple[ForgeIssue, ...]:
        """Ask the forge once for a poll, however often its commit is tried."""
        key = (item.id, poll.turn)
        if key not in self._changed:
            changed = self._forges[tracker.name].changed_since(poll.seen_until)
            self._changed[key] = tuple([replace(issue, body="") async for issue in changed])
        return self._changed[key]

    async def _touch_changed(self, tracker: Tracker, changed: Sequence[ForgeIssue], memory: Memory) -> None:
        """Plan the comparison of those of our issues that have changed since they were compared."""
        for start in range(0, len(changed), _BATCH):
            part = {issue.number: issue for issue in changed[start : start + _BATCH]}
            wanted = [{"tracker": tracker.name, "number": number} for number in part]
            answers = await memory.query(*(List(store=STORE, where=where, limit=10) for where in wanted))
            known = readable((item for answer in answers for item in answer.items), SyncedIssue)
            await _touch(
                memory,
                [
                    (item, sync)
                    for item, sync in known
                    if sync.number and (sync.seen_at is None or part[sync.number].updated_at > sync.seen_at)
                ],
            )

    async def _touch_watched(self, tracker: Tracker, memory: Memory) -> None:
        """Plan the comparison of all issues that are still of interest."""
        async for items in _pages(memory, {"tracker": tracker.name, "watched": True}):
            await _touch(memory, readable(items, SyncedIssue))


def first_poll(tracker: Tracker, item: Item | None, now: datetime) -> Commit:
    """Return the commit that begins the polls of a tracker; nothing if they are under way."""
    if item is None:
        due_at = now + timedelta(seconds=tracker.poll_s)
        new = TrackerPoll(
            tracker=tracker.name, seen_until=now - CLOCK_SKEW, reconcile_at=now + RECONCILE, due_at=due_at
        )
        write = put(STORE, poll_id(tracker.name), new)
        return Commit(writes=(write,), messages=(send(TrackerDue(tracker=tracker.name, turn=1), due_at=due_at),))
    poll = record(item, TrackerPoll)
    if now < poll.due_at + BROKEN_AFTER:
        return Commit()
    return _next(item, poll, now)


def _next(item: Item, poll: TrackerPoll, due_at: datetime) -> Commit:
    after = poll.model_copy(update={"turn": poll.turn + 1, "due_at": due_at})
    due = TrackerDue(tracker=poll.tracker, turn=after.turn)
    return Commit(writes=(put(STORE, item.id, after, existing=item),), messages=(send(due, due_at=due_at),))


async def _touch(memory: Memory, known: Iterable[tuple[Item, SyncedIssue]]) -> None:
    """Commit the comparison of issues, those that are planned or left alone excepted."""
    now = utc_now()
    rows = [(item, sync) for item, sync in known if sync.state == "synced"]
    if not rows:
        return
    writes = tuple(put(STORE, item.id, sync.touched(), existing=item) for item, sync in rows)
    messages = tuple(
        send(IssueDue(issue_id=item.id, turn=sync.touched().turn), due_at=now + place * _SPACING)
        for place, (item, sync) in enumerate(rows)
    )
    # A step of another content has another name.
    digest = hashlib.sha256(" ".join(f"{item.id} {item.version}" for item, _ in rows).encode()).hexdigest()[:16]
    await memory.step(Commit(step=f"touch {digest}", last=False, writes=writes, messages=messages))


async def _pages(memory: Memory, where: dict[str, object]) -> AsyncIterator[tuple[Item, ...]]:
    query = List(store=STORE, where=where, limit=_PAGE, ascending=True)
    seen = [page.items async for page in memory.pages(query)]
    for items in seen:
        for start in range(0, len(items), _BATCH):
            yield items[start : start + _BATCH]

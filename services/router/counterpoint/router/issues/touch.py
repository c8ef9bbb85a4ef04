"""Issues that webhooks are about. An event of one is a reason to compare it with its forge, and is believed in nothing.

So an edit of our own that comes back has no effect but one reading.
"""

from collections.abc import Sequence

from counterpoint.client import Memory, put, record, send
from counterpoint.proto.issues import IssueDue
from counterpoint.proto.memory import Commit, Get, Item, List
from counterpoint.router.issues.synced_issue import STORE, SyncedIssue
from counterpoint.router.issues.trackers import Tracker
from counterpoint.router.webhooks.issue_events import IssueEvent


async def touch_issue(trackers: Sequence[Tracker], memory: Memory, event: IssueEvent) -> tuple[str | None, Commit]:
    """Return the task of the issue of an event, None without one, and the commit that plans its comparison."""
    named = [each for each in trackers if each.project == memory.project and each.is_of(event.repository_url)]
    for tracker in named:
        item = await _known(tracker, memory, event)
        if item is None:
            continue
        sync = record(item, SyncedIssue)
        after = sync.touched()
        write = put(STORE, item.id, after, existing=item)
        if after.turn == sync.turn:
            return sync.task_id, Commit(writes=(write,))
        return sync.task_id, Commit(writes=(write,), messages=(send(IssueDue(issue_id=item.id, turn=after.turn)),))
    return None, Commit()


async def tasks_of_issues(
    trackers: Sequence[Tracker], memory: Memory, repository_url: str, numbers: Sequence[int]
) -> tuple[str, ...]:
    """Return the tasks of the issues of a repository with these numbers."""
    named = [each.name for each in trackers if each.project == memory.project and each.is_of(repository_url)]
    wanted = [{"tracker": name, "number": number} for name in named for number in numbers]
    answers = await memory.query(*(List(store=STORE, where=where, limit=1) for where in wanted)) if wanted else ()
    return tuple(dict.fromkeys(record(item, SyncedIssue).task_id for answer in answers for item in answer.items))


async def _known(tracker: Tracker, memory: Memory, event: IssueEvent) -> Item | None:
    """Return the record of an issue: by its number, or by its mark while the number is not known yet."""
    by_number, *by_mark = await memory.query(
        List(store=STORE, where={"tracker": tracker.name, "number": event.number}, limit=1),
        *([Get(store=STORE, id=event.mark)] if event.mark else []),
    )
    if by_number.items:
        return by_number.items[0]
    item = next((item for answer in by_mark for item in answer.items), None)
    sync = record(item, SyncedIssue) if item and item.body.get("tracker") == tracker.name else None
    return item if sync is not None and sync.number is None else None

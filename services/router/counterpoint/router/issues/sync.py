"""One comparison of an issue with its forge: what it reads decides what it writes, so that it can be repeated.

A comparison that was killed at any call is made again: the issue and our comments are found by their marks, and labels
and states that are there are not written again.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import structlog

from counterpoint.proto.messages import utc_now
from counterpoint.router.issues.forge import Forge, ForgeComment, ForgeError, ForgeIssue, ForgeNotFound, IssueMoved
from counterpoint.router.issues.marks import CommentMarks, marked_issue
from counterpoint.router.issues.merge import FieldWrites, OurFields, merge_fields
from counterpoint.router.issues.synced_issue import ASK_FOR, Progress, ReadMark, SyncedIssue, todo_id
from counterpoint.router.issues.texts import IssueContent, todo_list

log = structlog.get_logger()

CLOCK_SKEW = timedelta(days=1)
NEWEST = 100
"""An issue is searched by its mark among those that were opened since it was planned, and among so many in any case:
clocks may differ by more than `CLOCK_SKEW`."""
COMMENTS_LIMIT = 2000
CARD, QUESTION, TODOS = "card", "question", "todos"


@dataclass
class Comparison:
    """The state of one comparison, also if it failed midway. `said` are new comments of people, the oldest first.

    `closed_by` is the login of the person who closed the issue, if one did; `planned_off`: as not to be done.
    """

    progress: Progress
    revision: int
    said: list[ForgeComment] = field(default_factory=list)
    closed: bool = False
    closed_by: str | None = None
    planned_off: bool = False
    error: ForgeError | None = None

    def note(self, **changes: Any) -> None:
        """Change the progress."""
        self.progress = self.progress.model_copy(update=changes)


class IssueComparer:
    """Compares one issue with its forge."""

    def __init__(
        self, forge: Forge, issue_id: str, sync: SyncedIssue, content: IssueContent, marks: CommentMarks
    ) -> None:
        self._forge = forge
        self._issue_id = issue_id
        self._sync = sync
        self._content = content
        self._marks = marks
        self.result = Comparison(sync.progress, sync.revision)

    async def compare(self, timeout_s: float) -> Comparison:
        """Open or update the issue, and read what people did. An error is part of the result."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._compare()
        except TimeoutError:
            self.result.error = ForgeError(f"the comparison did not end within {timeout_s:g} s")
        except ForgeError as error:
            if isinstance(error, IssueMoved) and self._number is not None:
                self.result.note(number=self._number, left="moved", watched=False)
            else:
                self.result.error = error
        return self.result

    async def reply(self, replies: Mapping[str, str], timeout_s: float) -> None:
        """Comment once for each purpose, and note that the comments of people were acted on."""
        try:
            async with asyncio.timeout(timeout_s):
                for purpose, text in replies.items():
                    if purpose not in self.result.progress.comments:
                        await self._comment(purpose, text)
        except TimeoutError:
            self.result.error = self.result.error or ForgeError(f"the replies did not end within {timeout_s:g} s")
            return
        except ForgeError as error:
            self.result.error = self.result.error or error
            return
        if self.result.said:
            last = self.result.said[-1]
            self.result.note(read=ReadMark(at=last.updated_at, comment_id=last.id))

    async def _compare(self) -> None:
        issue = await self._issue()
        if issue is not None:
            await self._read_comments(issue)
            await self._write(issue)
            await self._write_todos(issue.number)

    @property
    def _number(self) -> int | None:
        return self._sync.number or self._content.adopted

    async def _issue(self) -> ForgeIssue | None:
        """Return the issue, opened if there is none; None for one that was deleted."""
        number = self._number
        if number is not None:
            try:
                issue = await self._forge.issue(number)
            except ForgeNotFound as missing:
                if not missing.gone:
                    await self._check_repository()
                self.result.note(number=number, left="deleted", watched=False)
                return None
            if self._is_foreign(issue):
                raise IssueMoved("its number is that of another issue")
        else:
            issue = (await self._marked({self._issue_id})).get(self._issue_id) or await self._opened()
        self.result.note(number=issue.number, url=issue.url[:2000], seen_at=issue.updated_at)
        return issue

    def _is_foreign(self, issue: ForgeIssue) -> bool:
        """Whether the tracker names another repository than before, where the number is that of somebody's issue.

        A repository that the forge has renamed is not the one that the tracker names.
        """
        known, configured = self._sync.url, issue.url.lower().startswith(f"{self._content.repository}/".lower())
        if known is None or issue.url[:2000] == known or not configured:
            return False
        return marked_issue(issue.body) != self._issue_id

    async def _marked(self, ids: Collection[str]) -> dict[str, ForgeIssue]:
        """Return the issues that earlier attempts have opened, by the ids in their marks."""
        oldest, count, found = self._sync.created_at - CLOCK_SKEW, 0, dict[str, ForgeIssue]()
        async for issue in self._forge.newest():
            count += 1
            mark = marked_issue(issue.body)
            if mark is not None and mark in ids:
                found.setdefault(mark, issue)
            if len(found) == len(ids) or (issue.created_at < oldest and count >= NEWEST):
                break
        return found

    async def _check_repository(self) -> None:
        """Raise `ForgeError` if the issues of the repository cannot be read: then none of them was deleted."""
        async for _ in self._forge.newest():
            return

    async def _opened(self) -> ForgeIssue:
        content = self._content
        body = content.body(self._issue_id)
        try:
            issue = await self._forge.create(content.title, body, content.assignees)
        except ForgeError as error:
            if not (error.refused and content.assignees):
                raise
            # Somebody who has left cannot be assigned.
            issue = await self._forge.create(content.title, body, ())
        self.result.note(card_sha256=content.sha256)
        return issue

    async def _read_comments(self, issue: ForgeIssue) -> None:
        """Read the comments since the last comparison: ours by their marks, those of people as said."""
        read = self._sync.read
        since = self._sync.created_at - CLOCK_SKEW if self._content.adopted else None
        comments = dict(self.result.progress.comments)
        found = list[ForgeComment]()
        async for comment in self._forge.comments(issue.number, read.at if read else since):
            purpose = self._marks.purpose_of(comment.body)
            if purpose is not None:
                comments.setdefault(purpose, comment.id)
            elif read is None or (comment.updated_at, comment.id) > (read.at, read.comment_id):
                found.append(comment)
            if len(found) > COMMENTS_LIMIT:
                raise ForgeError(f"the issue has more than {COMMENTS_LIMIT} new comments", final=True)
        self.result.said = sorted(found, key=lambda comment: (comment.updated_at, comment.id))
        self.result.note(comments=comments)

    async def _write(self, issue: ForgeIssue) -> None:
        """Write what is ours, as far as people have not decided otherwise. A label that is refused stops nothing."""
        progress, content = self.result.progress, self._content
        ours = OurFields(content.labels, "closed" if content.closes else "open", self._sync.begun)
        writes, fields = merge_fields(progress.fields, ours, issue.labels, issue.state)
        may_be_answered = content.asks is not None and utc_now() - self._sync.created_at < ASK_FOR
        if issue.state == "closed" and fields.by_person and content.ends:
            self.result.closed, self.result.planned_off = True, issue.planned_off
            self.result.closed_by = await self._forge.closer(issue)
        await self._write_comments()
        if writes.close:
            await self._forge.close(issue.number)
        if not await self._write_labels(issue.number, writes):
            fields = fields.model_copy(update={"labels": progress.fields.labels, "refused": progress.fields.refused})
        self.result.note(fields=fields, watched=content.ends or fields.found == "open" or may_be_answered)

    async def _write_todos(self, plan: int) -> None:
        """Open an issue for each step of a plan that has none, and list them all in one comment."""
        todos, known = self._content.todos, self.result.progress.todos
        missing = {todo_id(self._issue_id, todo.key): todo for todo in todos if todo.key not in known}
        marked = await self._marked(missing) if missing else {}
        for mark, todo in missing.items():
            issue = marked.get(mark) or await self._forge.create(todo.text, todo.body(mark, plan), ())
            await self._write_labels(issue.number, FieldWrites(add=self._content.labels))
            self.result.note(todos={**self.result.progress.todos, todo.key: issue.number})
        if todos and (missing or TODOS not in self.result.progress.comments):
            numbers = self.result.progress.todos
            await self._comment(TODOS, todo_list(numbers[todo.key] for todo in todos))

    async def _write_labels(self, number: int, writes: FieldWrites) -> bool:
        """Put and take away labels. Returns whether the forge did it; the next comparison tries again."""
        try:
            if writes.add:
                await self._forge.add_labels(number, writes.add)
            for label in writes.remove:
                await self._forge.remove_label(number, label)
        except ForgeError as error:
            if not error.refused:
                raise
            log.info("issue.labels_refused", issue=self._issue_id, error=str(error))
            return False
        return True

    async def _write_comments(self) -> None:
        """Show the present state in one comment, and ask what fixed a failure that has ended without a cause."""
        content = self._content
        if content.sha256 != self.result.progress.card_sha256:
            await self._comment(CARD, content.details)
            self.result.note(card_sha256=content.sha256)
        if content.asks and QUESTION not in self.result.progress.comments:
            await self._comment(QUESTION, content.asks)

    async def _comment(self, purpose: str, text: str) -> None:
        """Write a comment of ours, or replace it. One that a person deleted is not written again."""
        progress = self.result.progress
        assert progress.number is not None
        body = f"{self._marks.of(purpose)}\n{text}"
        known = progress.comments.get(purpose)
        if known is None:
            made = await self._forge.add_comment(progress.number, body)
            self.result.note(comments={**progress.comments, purpose: made})
            return
        try:
            await self._forge.edit_comment(progress.number, known, body)
        except ForgeNotFound:
            log.info("issue.comment_deleted", issue=self._issue_id, purpose=purpose)

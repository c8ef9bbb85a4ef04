"""One comparison of an issue with its forge: what it reads decides what it writes, so that it can be repeated.

A comparison that was killed at any call is made again: the issue and our comments are found by their marks, and labels
and states that are there are not written again.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from counterpoint.proto.messages import utc_now
from counterpoint.router.issues.forge import Forge, ForgeComment, ForgeError, ForgeIssue, Moved, NotThere
from counterpoint.router.issues.marks import mark_of_comment, marked_comment, marked_issue
from counterpoint.router.issues.merge import OurFields, merge_fields
from counterpoint.router.issues.synced_issue import ASK_FOR, Progress, ReadMark, SyncedIssue
from counterpoint.router.issues.texts import IssueContent

CLOCK_SKEW = timedelta(days=1)
"""Largest difference between our clock and that of a forge, when an issue is searched by its mark."""
COMMENTS_LIMIT = 2000
CARD, QUESTION = "card", "question"


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

    def __init__(self, forge: Forge, issue_id: str, sync: SyncedIssue, content: IssueContent) -> None:
        self._forge = forge
        self._issue_id = issue_id
        self._sync = sync
        self._content = content
        self.result = Comparison(sync.progress, sync.revision)

    async def compare(self, timeout_s: float) -> Comparison:
        """Open or update the issue, and read what people did. An error is part of the result."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._compare()
        except TimeoutError:
            self.result.error = ForgeError(f"the comparison did not end within {timeout_s:g} s")
        except ForgeError as error:
            if isinstance(error, Moved) and self._number is not None:
                self.result.note(number=self._number, left="moved", watched=False)
            else:
                self.result.error = error
        return self.result

    async def reply(self, replies: Mapping[str, str]) -> None:
        """Comment once for each purpose, and note that the comments of people were acted on."""
        try:
            for purpose, text in replies.items():
                if purpose not in self.result.progress.comments:
                    await self._comment(purpose, text)
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
            await self._write_fields(issue)
            await self._write_comments()
            await self._note_closing(issue)

    @property
    def _number(self) -> int | None:
        return self._sync.number or self._content.adopted

    async def _issue(self) -> ForgeIssue | None:
        """Return the issue, opened if there is none; None for one that was deleted."""
        number = self._number
        if number is not None:
            try:
                issue = await self._forge.issue(number)
            except NotThere as missing:
                if not missing.gone:
                    await self._check_repository()
                self.result.note(number=number, left="deleted", watched=False)
                return None
        else:
            issue = await self._marked() or await self._opened()
        self.result.note(number=issue.number, url=issue.url[:2000], seen_at=issue.updated_at)
        return issue

    async def _marked(self) -> ForgeIssue | None:
        """Return the issue that an earlier attempt has opened."""
        oldest = self._sync.created_at - CLOCK_SKEW
        async for issue in self._forge.newest():
            if issue.created_at < oldest:
                return None
            if marked_issue(issue.body) == self._issue_id:
                return issue
        return None

    async def _check_repository(self) -> None:
        """Raise `ForgeError` if the issues of the repository cannot be read: then none of them was deleted."""
        async for _ in self._forge.newest():
            return

    async def _opened(self) -> ForgeIssue:
        content = self._content
        issue = await self._forge.create(content.title, content.body(self._issue_id), content.assignees)
        self.result.note(card_sha256=content.sha256)
        return issue

    async def _read_comments(self, issue: ForgeIssue) -> None:
        """Read the comments since the last comparison: ours by their marks, those of people as said."""
        read = self._sync.read
        comments = dict(self.result.progress.comments)
        found = list[ForgeComment]()
        async for comment in self._forge.comments(issue.number, read.at if read else None):
            mark = marked_comment(comment.body)
            if mark is not None and mark[0] == self._issue_id:
                comments.setdefault(mark[1], comment.id)
            elif mark is None and (read is None or (comment.updated_at, comment.id) > (read.at, read.comment_id)):
                found.append(comment)
            if len(found) > COMMENTS_LIMIT:
                raise ForgeError(f"the issue has more than {COMMENTS_LIMIT} new comments", final=True)
        self.result.said = sorted(found, key=lambda comment: (comment.updated_at, comment.id))
        self.result.note(comments=comments)

    async def _write_fields(self, issue: ForgeIssue) -> None:
        """Write labels and state as far as people have not decided otherwise."""
        progress, content = self.result.progress, self._content
        ours = OurFields(content.labels, "closed" if content.closes else "open", self._sync.begun)
        writes, fields = merge_fields(progress.fields, ours, issue.labels, issue.state)
        if writes.close:
            await self._forge.close(issue.number)
        if writes.add:
            await self._forge.add_labels(issue.number, writes.add)
        for label in writes.remove:
            await self._forge.remove_label(issue.number, label)
        asked = content.asks is not None and utc_now() - self._sync.created_at < ASK_FOR
        self.result.note(fields=fields, watched=not content.over or fields.found == "open" or asked)

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
        if purpose in progress.removed:
            return
        body = f"{mark_of_comment(self._issue_id, purpose)}\n{text}"
        known = progress.comments.get(purpose)
        if known is None:
            made = await self._forge.add_comment(progress.number, body)
            self.result.note(comments={**progress.comments, purpose: made})
            return
        try:
            await self._forge.edit_comment(progress.number, known, body)
        except NotThere:
            self.result.note(removed=(*progress.removed, purpose))

    async def _note_closing(self, issue: ForgeIssue) -> None:
        fields = self.result.progress.fields
        if issue.state == "closed" and fields.by_person and not self._content.over:
            self.result.closed, self.result.planned_off = True, issue.planned_off
            self.result.closed_by = await self._forge.closer(issue)

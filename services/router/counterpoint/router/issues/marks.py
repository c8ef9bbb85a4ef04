"""Marks: the comments by which our issues and our comments are known, and which forges do not show. Pure.

The mark of a comment is sealed: whoever has read that of the issue cannot make one beforehand.
"""

import hashlib
import hmac
import re

_ISSUE = re.compile(r"<!--\s*counterpoint:issue ([A-Za-z0-9_-]{1,64})\s*-->")
_COMMENT = re.compile(r"\s*<!-- counterpoint:comment ([a-z0-9-]{1,40}) ([0-9a-f]{16}) -->")


def marked_issue(text: str | None) -> str | None:
    """Return the id of the synchronized issue in the mark of a body, None without one."""
    found = _ISSUE.search(text or "")
    return found.group(1) if found else None


def mark_of_issue(issue_id: str) -> str:
    """Return the mark of a body."""
    return f"<!-- counterpoint:issue {issue_id} -->"


class CommentMarks:
    """The marks of our comments on one issue, sealed with a secret of its tracker."""

    def __init__(self, issue_id: str, secret: str) -> None:
        self._issue_id = issue_id
        self._key = secret.encode()

    def of(self, purpose: str) -> str:
        """Return the mark of a comment."""
        return f"<!-- counterpoint:comment {purpose} {self._seal(purpose)} -->"

    def purpose_of(self, text: str) -> str | None:
        """Return the purpose in the mark of a comment of ours, None for any other comment."""
        found = _COMMENT.match(text)
        if found is None or not hmac.compare_digest(found.group(2), self._seal(found.group(1))):
            return None
        return found.group(1)

    def _seal(self, purpose: str) -> str:
        return hmac.new(self._key, f"{self._issue_id} {purpose}".encode(), hashlib.sha256).hexdigest()[:16]

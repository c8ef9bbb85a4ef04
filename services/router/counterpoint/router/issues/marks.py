"""Marks: the comments by which our issues and our comments are known, and which forges do not show. Pure."""

import re

_MARK = re.compile(r"<!--\s*counterpoint:(issue|comment) ([A-Za-z0-9_-]{1,64})(?: ([a-z0-9-]{1,40}))?\s*-->")


def marked_issue(text: str | None) -> str | None:
    """Return the id of the synchronized issue in the mark of a body, None without one."""
    found = next((each for each in _MARK.finditer(text or "") if each.group(1) == "issue"), None)
    return found.group(2) if found else None


def marked_comment(text: str | None) -> tuple[str, str] | None:
    """Return the id and the purpose in the mark of a comment of ours, None for any other."""
    found = _MARK.match((text or "").lstrip())
    return (found.group(2), found.group(3) or "") if found and found.group(1) == "comment" else None


def mark_of_issue(issue_id: str) -> str:
    """Return the mark of a body."""
    return f"<!-- counterpoint:issue {issue_id} -->"


def mark_of_comment(issue_id: str, purpose: str) -> str:
    """Return the mark of a comment of ours."""
    return f"<!-- counterpoint:comment {issue_id} {purpose} -->"

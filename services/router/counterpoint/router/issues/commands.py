"""Commands in comments: what fixed a failure, in the first line of a person's comment. Pure."""

import re

from counterpoint.proto.attempts import ReportOutcome

_FIXED = re.compile(r"fixed\s+by\b[\s:,-]*(.*)", re.IGNORECASE | re.DOTALL)
_NOT_FIXED = re.compile(r"not\s+fixed\b[\s:,.-]*(.*)", re.IGNORECASE | re.DOTALL)
_PROPOSAL = re.compile(r"(?:the|your)\s+(?:proposal|proposed\s+fix)\s*([.,;:!\n].*)?", re.IGNORECASE | re.DOTALL)
_ITSELF = re.compile(r"(?:itself|nothing)\s*([.,;:!\n].*)?", re.IGNORECASE | re.DOTALL)
_NOTE_CHARS = 16_000
_MARKUP = "*_`# \t"


def outcome_in(text: str, task_id: str) -> ReportOutcome | None:
    """Return the outcome that a comment reports, None for any other comment.

    A quotation is no command. `fixed by` without more says that something fixed it, and not what.
    """
    command = text.replace("\r\n", "\n").replace("\x00", "").strip().lstrip(_MARKUP)
    if found := _NOT_FIXED.fullmatch(command):
        return ReportOutcome(task_id=task_id, outcome="failed", note=_note(found.group(1)))
    if not (found := _FIXED.fullmatch(command)):
        return None
    rest = found.group(1).strip()
    if known := _PROPOSAL.fullmatch(rest):
        return ReportOutcome(task_id=task_id, outcome="succeeded", by="proposal", note=_note(known.group(1)))
    if known := _ITSELF.fullmatch(rest):
        return ReportOutcome(task_id=task_id, outcome="succeeded", by="nothing", note=_note(known.group(1)))
    return ReportOutcome(task_id=task_id, outcome="succeeded", by="something_else", note=_note(rest))


def _note(text: str | None) -> str | None:
    clean = (text or "").lstrip(".,;:! \t\n").strip().strip(_MARKUP)
    return clean.encode(errors="replace").decode()[:_NOTE_CHARS] or None

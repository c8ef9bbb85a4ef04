"""Sessions: tasks that belong together, and the summary of what they came to."""

from typing import ClassVar

from counterpoint.proto.messages import Id, Message, ProjectName, Shape, Time

STORE = "sessions"


class SessionRecord(Shape):
    """The record of a session: its latest tasks, and a `summary` of one line each, newest last."""

    session_id: Id
    project: ProjectName
    task_ids: tuple[Id, ...]
    summary: str
    opened_at: Time
    continued_at: Time


class SessionSummary(SessionRecord):
    """The record of what the earlier tasks of a session came to, as `summary`, compacted by rules or by a model, `by`
    name. It is apart from the session, since it rests on more than that."""

    by: str


class SummarizeSession(Message):
    """A task continues a session: compact what its earlier tasks came to."""

    TYPE: ClassVar[str] = "counterpoint.session.summarize.v1"

    task_id: Id
    session_id: Id


def summary_id(session_id: str) -> str:
    """Return the id of the summary of a session."""
    return f"{session_id}.summary"

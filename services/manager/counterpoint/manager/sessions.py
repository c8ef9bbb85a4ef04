"""Sessions: tasks that belong together, because the sender said so, or one task alone (row A1)."""

from datetime import datetime

from counterpoint.proto.ids import derived_id
from counterpoint.proto.records import Session
from counterpoint.proto.tasks import TaskRouted

REMEMBERED_TASKS = 20
LINE_CHARS = 200


def session_id_of(message: TaskRouted) -> str:
    """The session that was named, else one that belongs to this task alone."""
    return message.task.session_id or derived_id(message.task_id, "session")


def joined(session: Session | None, message: TaskRouted, now: datetime) -> Session:
    """The session with this task in it: a new one, or the known one continued."""
    asked = message.task.title or message.task.description
    line = f"{message.task.kind}: {' '.join(asked.split())[:LINE_CHARS]}"
    known_ids, known_lines = (session.task_ids, session.summary.splitlines()) if session else ((), [])
    return Session(
        session_id=session_id_of(message),
        project=message.project,
        task_ids=(*known_ids, message.task_id)[-REMEMBERED_TASKS:],
        summary="\n".join([*known_lines, line][-REMEMBERED_TASKS:]),
        opened_at=session.opened_at if session else now,
        continued_at=now,
    )

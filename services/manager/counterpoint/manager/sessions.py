"""Sessions: tasks that the sender grouped, or a single task."""

from datetime import datetime

from counterpoint.proto.ids import derived_id
from counterpoint.proto.sessions import SessionRecord
from counterpoint.proto.tasks import TaskRouted

REMEMBERED_TASKS = 20
LINE_CHARS = 200


def session_id_of(message: TaskRouted) -> str:
    """Id of the session in the request, else of a session for this task only."""
    return message.task.session_id or derived_id(message.task_id, "session")


def with_task(session: SessionRecord | None, message: TaskRouted, now: datetime) -> SessionRecord:
    """Add the task to its session, a known or a new one."""
    title = message.task.title or message.task.description
    line = f"{message.task.kind}: {' '.join(title.split())[:LINE_CHARS]}"
    known_ids, known_lines = (session.task_ids, session.summary.splitlines()) if session else ((), [])
    return SessionRecord(
        session_id=session_id_of(message),
        project=message.project,
        task_ids=(*known_ids, message.task_id)[-REMEMBERED_TASKS:],
        summary="\n".join([*known_lines, line][-REMEMBERED_TASKS:]),
        opened_at=session.opened_at if session else now,
        continued_at=now,
    )

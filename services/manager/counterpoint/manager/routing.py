"""The beginning of a task: its record and its first attempt."""

from counterpoint.manager.moves import Move, Said
from counterpoint.manager.sessions import session_id_of
from counterpoint.manager.workflow import SUBMITTED, Event, transition
from counterpoint.proto.signature import signature
from counterpoint.proto.tasks import SubmitTask, Task, TaskRouted

_ASKED = SubmitTask.model_fields.keys() - {"task_id", "session_id", "project"}


def begun(message: TaskRouted) -> Move:
    """The first attempt at a task that was routed."""
    row = transition(SUBMITTED, Event.ROUTED)
    assert row is not None
    asked = message.task
    digest = signature(asked.error_message).digest if asked.error_message else None
    task = Task(
        task_id=message.task_id,
        project=message.project,
        state=row.to.state,
        waiting_for=row.to.waiting_for,
        error_signature=digest,
        session_id=session_id_of(message),
        submitted_by=message.submitted_by,
        submitted_at=message.submitted_at,
        lane=message.lane,
        attempt=1,
        **{name: getattr(asked, name) for name in _ASKED},
    )
    facts = [
        f"lane {message.lane}",
        f"error signature {digest}" if digest else "no error",
        f"deadline {asked.deadline.isoformat()}" if asked.deadline else "no deadline",
    ]
    reasoning = f"{asked.kind} by {message.submitted_by}: {', '.join(facts)}; attempt 1 goes to the developer"
    return Move(said=(Said("plan", reasoning),), decision="delegate attempt 1", task=task, delegate="work")


def request_of(task: Task) -> SubmitTask:
    """What was asked for, out of the record."""
    return SubmitTask.model_validate(task.model_dump(include=set(SubmitTask.model_fields)))

"""The beginning of a task: its record and its first attempt."""

from counterpoint.manager.sessions import session_id_of
from counterpoint.manager.task_update import ReasoningStep, TaskUpdate
from counterpoint.manager.workflow import SUBMITTED, WorkflowEvent, transition
from counterpoint.proto.incident_settings import EffectiveIncidentSettings
from counterpoint.proto.signature import signature
from counterpoint.proto.tasks import SubmitTask, Task, TaskRouted

_REQUEST_FIELDS = SubmitTask.model_fields.keys() - {"task_id", "session_id", "project"}


def first_attempt(message: TaskRouted, settings: EffectiveIncidentSettings) -> TaskUpdate:
    """Return the first attempt at a task that was routed, under the `settings` of its incidents."""
    applied = settings if message.task.kind == "troubleshoot" else EffectiveIncidentSettings()
    row = transition(SUBMITTED, WorkflowEvent.ROUTED)
    assert row is not None
    request = message.task
    digest = signature(request.error_message).digest if request.error_message else None
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
        quiet_s=applied.quiet_s,
        shadow=applied.shadow,
        **{name: getattr(request, name) for name in _REQUEST_FIELDS},
    )
    facts = [
        f"lane {message.lane}",
        f"error signature {digest}" if digest else "no error",
        f"deadline {request.deadline.isoformat()}" if request.deadline else "no deadline",
        *((f"ends after {applied.quiet_s:.0f} quiet seconds",) if applied.quiet_s else ()),
        *(("in shadow",) if applied.shadow else ()),
    ]
    reasoning = f"{request.kind} by {message.submitted_by}: {', '.join(facts)}; attempt 1 goes to the developer"
    return TaskUpdate(
        steps=(ReasoningStep("plan", reasoning),), decision="delegate attempt 1", task=task, delegate="work"
    )


def request_of(task: Task) -> SubmitTask:
    """Rebuild the submitted request from the record."""
    return SubmitTask.model_validate(task.model_dump(include=set(SubmitTask.model_fields)))

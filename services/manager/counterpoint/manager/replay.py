"""Replay of the manager's deliveries, see `counterpoint.client.replay`."""

from collections.abc import Mapping
from typing import Any

from counterpoint.client import Gateway
from counterpoint.client.replay import Handler, replay_lines
from counterpoint.guard import policy as shipped
from counterpoint.manager.approval_handlers import ApprovalDesk
from counterpoint.manager.handlers import ManagerHandlers
from counterpoint.manager.task_limits import TaskLimits
from counterpoint.proto.approvals import ApprovalDecided
from counterpoint.proto.attempts import TaskOutcomeReported
from counterpoint.proto.interventions import AmendTask, CancelTask, TaskOverridden
from counterpoint.proto.sessions import SummarizeSession
from counterpoint.proto.tasks import TaskDue, TaskRouted, TaskWorked


def handlers(policy: Mapping[str, Any], gateway: Gateway) -> Mapping[str, Handler]:
    """Return the handlers of tasks under the `limits` of a policy. Raises `TypeError` for a limit that does not
    exist."""
    manager = ManagerHandlers(TaskLimits(**policy.get("limits", {})), ApprovalDesk(shipped.policy().approvals), gateway)
    return {
        TaskRouted.TYPE: manager.on_routed,
        TaskWorked.TYPE: manager.on_worked,
        TaskOutcomeReported.TYPE: manager.on_outcome,
        TaskOverridden.TYPE: manager.on_overridden,
        AmendTask.TYPE: manager.on_amended,
        CancelTask.TYPE: manager.on_cancel,
        ApprovalDecided.TYPE: manager.on_decided,
        TaskDue.TYPE: manager.on_due,
        SummarizeSession.TYPE: manager.on_summarize,
    }


if __name__ == "__main__":
    replay_lines(handlers)

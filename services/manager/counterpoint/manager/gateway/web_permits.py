"""Permission to search the web for a task, under the policy of approvals. Pure."""

from counterpoint.guard.policy import ApprovalPolicy
from counterpoint.manager.gateway.calls import WebSearchCall
from counterpoint.manager.gateway.reservation_input import CallingTask
from counterpoint.proto.errors import Denied, ErrorCode


def require_permit(policy: ApprovalPolicy, project: str, task: CallingTask, call: WebSearchCall) -> None:
    """Refuse a search that the policy refuses, or that needs an approval and is not the one that a person approved.

    Raises `Denied` `not_approved`.
    """
    rule = policy.act("web", task.autonomy, project)
    if rule == "refuse":
        raise Denied(ErrorCode.NOT_APPROVED, f"a policy of project {project} that permits searches of the web")
    if rule == "ask" and call.query != task.permitted_search:
        raise Denied(ErrorCode.NOT_APPROVED, "the approval of a person for a search of the web with these words")

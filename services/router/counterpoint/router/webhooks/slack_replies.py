"""Replies in messages of Slack: they decide an approval, report an outcome, or say what fixed a failure."""

import json
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs

from pydantic import StringConstraints, ValidationError

from counterpoint.proto.approvals import ApprovalDecision, Sha256
from counterpoint.proto.attempts import ReportOutcome
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.messages import Id, ProjectName, Shape
from counterpoint.router.api.approvals import decide_approval
from counterpoint.router.api.context import RequestContext
from counterpoint.router.api.tasks import report_outcome
from counterpoint.router.webhooks.reports import path

_NOTE = "reported in Slack"


class SlackReply(Shape):
    """A click on a button, or a text that was entered as `note`: its user, its action, and what the message says of
    its task."""

    user: str
    action: Literal["approved", "rejected", "succeeded", "failed", "recovered", "changed"]
    project: ProjectName
    task_id: Id
    approval_id: Id | None = None
    sha256: Sha256 | None = None
    attempt: int | None = None
    note: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=16_000)] | None = None


def reply_in(content: bytes) -> SlackReply:
    """Return the reply in the body of a request. Raises `Permanent` `malformed` or `invalid`."""
    try:
        payload: Any = json.loads(parse_qs(content.decode(), strict_parsing=True)["payload"][0])
        action = path(payload, "actions", 0)
        entered = path(action, "action_id") == "changed"
        # The value of a field is its text; what the message says of the task is the id of its block.
        value = json.loads(path(action, "block_id" if entered else "value") or "null")
    except (ValueError, KeyError, RecursionError, TypeError) as error:
        problem = Problem(field="payload", problem="is not the form that Slack sends for a button")
        raise Permanent(ErrorCode.MALFORMED, (problem,)) from error
    known = value if isinstance(value, dict) else {}
    fields = {"user": path(payload, "user", "id"), "action": path(action, "action_id")}
    if entered:
        fields["note"] = path(action, "value") or ""
    try:
        return SlackReply.model_validate(known | fields)
    except ValidationError as error:
        problem = Problem(field="payload", problem="is not a reply to a message of ours")
        raise Permanent(ErrorCode.INVALID, (problem,)) from error


async def act_on(context: RequestContext, reply: SlackReply, request_id: str) -> None:
    """Decide an approval or report an outcome. A second decision of the same person, or the same request again, changes
    nothing.

    Raises `Denied` without the role, and `Permanent` for a text other than the one shown, or what is decided already.
    """
    if reply.action in ("approved", "rejected"):
        if reply.approval_id is None or reply.sha256 is None:
            raise Permanent(ErrorCode.INVALID, (Problem(field="approval_id", problem="is required"),))
        reason = "rejected in Slack" if reply.action == "rejected" else None
        decision = ApprovalDecision(decision=reply.action, artifact_sha256=reply.sha256, reason=reason)
        await decide_approval(context, reply.approval_id, decision)
        return
    context.require("report")
    await report_outcome(context, _report_in(reply), request_id=request_id)


def _report_in(reply: SlackReply) -> ReportOutcome:
    match reply.action:
        case "changed":
            return ReportOutcome(task_id=reply.task_id, outcome="succeeded", by="something_else", note=reply.note)
        case "recovered":
            return ReportOutcome(task_id=reply.task_id, outcome="succeeded", by="nothing", note=_NOTE)
        case "succeeded" if reply.attempt is None:
            # A note would be taken for what the reporter did.
            return ReportOutcome(task_id=reply.task_id, outcome="succeeded", by="proposal")
        case _:
            outcome = "failed" if reply.action == "failed" else "succeeded"
            return ReportOutcome(task_id=reply.task_id, attempt=reply.attempt, outcome=outcome, note=_NOTE)

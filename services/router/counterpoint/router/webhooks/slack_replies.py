"""Clicks on buttons in Slack: they decide an approval or report an outcome."""

import json
from typing import Any, Literal
from urllib.parse import parse_qs

from pydantic import ValidationError

from counterpoint.proto.approvals import ApprovalDecision, Sha256
from counterpoint.proto.attempts import ReportOutcome
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.messages import Id, ProjectName, Shape
from counterpoint.router.api.approvals import decide_approval
from counterpoint.router.api.context import RequestContext
from counterpoint.router.api.tasks import report_outcome
from counterpoint.router.webhooks.reports import path


class SlackReply(Shape):
    """A click on a button: its user, its action, and the value that the message gave the button."""

    user: str
    action: Literal["approved", "rejected", "succeeded", "failed"]
    project: ProjectName
    task_id: Id
    approval_id: Id | None = None
    sha256: Sha256 | None = None
    attempt: int | None = None


def reply_in(content: bytes) -> SlackReply:
    """Return the click in the body of a request. Raises `Permanent` `malformed` or `invalid`."""
    try:
        payload: Any = json.loads(parse_qs(content.decode(), strict_parsing=True)["payload"][0])
        value = json.loads(path(payload, "actions", 0, "value") or "null")
    except (ValueError, KeyError, RecursionError, TypeError) as error:
        problem = Problem(field="payload", problem="is not the form that Slack sends for a button")
        raise Permanent(ErrorCode.MALFORMED, (problem,)) from error
    known = value if isinstance(value, dict) else {}
    asked = {"user": path(payload, "user", "id"), "action": path(payload, "actions", 0, "action_id")}
    try:
        return SlackReply.model_validate(known | asked)
    except ValidationError as error:
        problem = Problem(field="payload", problem="is not the click on a button of ours")
        raise Permanent(ErrorCode.INVALID, (problem,)) from error


async def act_on(context: RequestContext, reply: SlackReply) -> None:
    """Decide an approval or report an outcome. A second click of the same person changes nothing.

    Raises `Denied` without the role, and `Permanent` for a text other than the one shown, or what is decided already.
    """
    if reply.action in ("approved", "rejected"):
        context.require("approve")
        if reply.approval_id is None or reply.sha256 is None:
            raise Permanent(ErrorCode.INVALID, (Problem(field="approval_id", problem="is required"),))
        reason = "rejected in Slack" if reply.action == "rejected" else None
        decision = ApprovalDecision(decision=reply.action, artifact_sha256=reply.sha256, reason=reason)
        await decide_approval(context, reply.approval_id, decision)
        return
    context.require("report")
    report = ReportOutcome(task_id=reply.task_id, attempt=reply.attempt, outcome=reply.action, note="reported in Slack")
    await report_outcome(context, report)

"""The tool that decides an approval, which asks the person at the client where no decision is given."""

from typing import Annotated, Any

from fastmcp import Context as McpContext
from fastmcp.server.elicitation import AcceptedElicitation
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, Field

from counterpoint.proto.approvals import ApprovalDecision, Sha256, ShownApproval, Verdict
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.messages import Id
from counterpoint.router.api import approvals
from counterpoint.router.api.body import validate
from counterpoint.router.api.delegations import require_approver
from counterpoint.router.mcp.caller import Project, caller

_FORM = "decision"
DECISION_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "decision": {"type": "string", "enum": ["approved", "rejected"], "title": "Decision"},
        "reason": {"type": "string", "title": "Reason", "description": "Needed for a rejection."},
    },
    "required": ["decision"],
}


class _Answer(BaseModel):
    """The fields of the form."""

    decision: Verdict
    reason: str = ""


async def decide_approval(
    ctx: McpContext,
    approval_id: Annotated[Id, Field(description="The approval's id, which the task names.")],
    decision: Annotated[Verdict | None, Field(description="Left out: the person at the client is asked.")] = None,
    artifact_sha256: Annotated[
        Sha256 | None, Field(description="The hash of the text that the person read, with a decision.")
    ] = None,
    reason: Annotated[str | None, Field(max_length=16_000, description="Needed for a rejection.")] = None,
    project: Project = None,
) -> ShownApproval | InputRequiredResult:
    """Approve or reject an act that waits for a person. The token must be a person's.

    Without a decision the text to approve is shown to the person at the client, whose answer counts.
    Example: {"approval_id": "018f6b2e"}
    """
    context = caller(project)
    await require_approver(context)
    if decision is None:
        shown = await approvals.read_approval(context, approval_id)
        if shown.state != "pending":
            return shown
        answer = await _answer(ctx, shown)
        if isinstance(answer, InputRequiredResult):
            return answer
        # The answer is about the text that was shown then, which may have changed since.
        artifact_sha256, decision, reason = answer[0], answer[1].decision, answer[1].reason or None
    body = {"decision": decision, "artifact_sha256": artifact_sha256, "reason": reason}
    value = validate(ApprovalDecision, {name: each for name, each in body.items() if each is not None})
    return await approvals.decide_approval(context, approval_id, value)


async def _answer(ctx: McpContext, shown: ShownApproval) -> tuple[str, _Answer] | InputRequiredResult:
    """Return the hash of the text that a person has read, and the answer; or the request for it.

    From protocol 2026-07-28 on the request is the call's result, and the hash its sealed state.
    """
    capabilities = ctx.session.client_capabilities
    if capabilities is None or capabilities.elicitation is None:
        raise _unanswered(f"the client cannot ask; read the text with artifact_sha256 {shown.artifact_sha256}")
    request = ctx.request_context
    if request is None or request.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        reply = await ctx.elicit(question(shown), _Answer)
        if not isinstance(reply, AcceptedElicitation):
            raise _unanswered("the person gave no answer")
        return shown.artifact_sha256, reply.data
    responses = ctx.input_responses or {}
    if _FORM not in responses:
        form = ElicitRequestFormParams(message=question(shown), requested_schema=DECISION_FORM)
        return InputRequiredResult(
            input_requests={_FORM: ElicitRequest(params=form)}, request_state=shown.artifact_sha256
        )
    response = responses[_FORM]
    if not isinstance(response, ElicitResult) or response.action != "accept":
        raise _unanswered("the person gave no answer")
    content = {name: each for name, each in (response.content or {}).items() if each is not None}
    return ctx.request_state or "", _Answer.model_validate(content)


def question(shown: ShownApproval) -> str:
    """Return the text that a person reads before a decision."""
    return f"{shown.summary}\n\n{shown.artifact}"


def _unanswered(problem: str) -> Permanent:
    return Permanent(ErrorCode.INVALID, (Problem(field="decision", problem=problem),))

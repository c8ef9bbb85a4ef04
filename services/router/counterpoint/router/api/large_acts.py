"""Large acts over HTTP: the reply to an erasure or take-back that waits for a second person (docs/approvals.md)."""

from fastapi import Response
from fastapi.responses import JSONResponse

from counterpoint.proto.approvals import ShownApproval
from counterpoint.proto.commands import CommandReply
from counterpoint.router.api.approvals import read_own
from counterpoint.router.api.context import RequestContext

_NEXT = (
    "Nothing was changed. A second person with the role approve decides with POST /v1/approvals/{id} "
    "(`counterpoint approve {id}`); then send this request again. "
    "It is asked again if the list of records has changed by then."
)


class AwaitedApproval(ShownApproval):
    """The approval that an act waits for, and what to do next."""

    next: str


async def awaited(context: RequestContext, reply: CommandReply) -> Response | None:
    """Return the reply 202 of an act that waits for an approval, None for one that was done."""
    if reply.approval is None:
        return None
    shown = await read_own(context, reply.approval)
    waiting = AwaitedApproval(**shown.model_dump(), next=_NEXT.format(id=shown.approval_id))
    return JSONResponse(waiting.model_dump(mode="json", exclude_none=True), 202)

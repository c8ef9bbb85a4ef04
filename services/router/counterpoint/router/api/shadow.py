"""Shadow report over HTTP: recorded proposals beside the actual fixes."""

from datetime import timedelta

from fastapi import APIRouter, Response

from counterpoint.client import records
from counterpoint.client.shadow import ShadowCounts, ShadowProposal, count_proposals, shadow_proposals
from counterpoint.proto.incident_settings import SHADOW_REPORT_S, STORE, StoredIncidentSettings
from counterpoint.proto.memory import List
from counterpoint.proto.messages import Time
from counterpoint.router.api.body import reply
from counterpoint.router.api.context import Context

router = APIRouter(prefix="/v1/shadow", tags=["operate"])

_PAGE = 200


class ShadowReport(ShadowCounts):
    """Proposals made in shadow, newest first. `share`: the correct part of those with a known outcome.

    `due_at`: the end of the first week. Acts are compared by their words: read the pairs before relying on the share.
    """

    since: Time | None = None
    due_at: Time | None = None
    due: bool = False
    items: tuple[ShadowProposal, ...]


@router.get("", responses={200: {"model": ShadowReport}}, response_model=None)
async def shadow(context: Context) -> Response:
    """Return the proposals made in shadow, and how many would have been correct."""
    context.require("read")
    memory = context.memory()
    settings = List(store=STORE, limit=_PAGE)
    stored = [each async for page in memory.pages(settings) for each in records(page.items, StoredIncidentSettings)]
    items = await shadow_proposals(memory)
    since = min((each.shadow_since for each in stored if each.shadow_since), default=None)
    due_at = since + timedelta(seconds=SHADOW_REPORT_S) if since else None
    report = ShadowReport(
        since=since,
        due_at=due_at,
        due=due_at is not None and due_at <= memory.now,
        items=items,
        **count_proposals(items).model_dump(),
    )
    return reply(report)

"""Search of jobs and datasets by name, over HTTP."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from counterpoint.graph.lineage import owners_of
from counterpoint.graph.names import Node, NodeKind
from counterpoint.proto.memory import Item, List
from counterpoint.proto.messages import Shape, Time
from counterpoint.router.api.body import NO_NUL_PATTERN, item_json
from counterpoint.router.api.context import Context, RequestContext
from counterpoint.router.paging import Cursor, Limit, ListPage, page

router = APIRouter(prefix="/v1", tags=["lineage"])

SCANNED_PAGES, SCANNED = 5, 1000
"""Maximum number of lists read for one page of results, and the records in each."""

SearchText = Annotated[
    str,
    Query(
        max_length=500,
        pattern=NO_NUL_PATTERN,
        description="Words that must all occur in the name or namespace; upper case or lower.",
    ),
]


class RunAt(Shape):
    """A run of a job, and its time."""

    run_id: str
    at: Time


class NamedNode(Shape):
    """A job or dataset by its name. The owners are its own, else those that lineage gives it. The last runs are those
    of a job."""

    kind: NodeKind
    namespace: str
    name: str
    owners: tuple[str, ...] = ()
    last_success: RunAt | None = None
    last_failure: RunAt | None = None


@router.get("/jobs", responses={200: {"model": ListPage[NamedNode]}}, response_model=None)
async def jobs(context: Context, cursor: Cursor, text: SearchText = "", limit: Limit = 50) -> Response:
    """List jobs by name, last changed first. A page may be short or empty where more follow."""
    return await _found(context, NodeKind.JOB, text, limit, cursor)


@router.get("/datasets", responses={200: {"model": ListPage[NamedNode]}}, response_model=None)
async def datasets(context: Context, cursor: Cursor, text: SearchText = "", limit: Limit = 50) -> Response:
    """List data sets by name, last changed first. A page may be short or empty where more follow."""
    return await _found(context, NodeKind.DATASET, text, limit, cursor)


async def _found(context: RequestContext, kind: NodeKind, text: str, limit: int, cursor: int | None) -> Response:
    context.require("read")
    words, found = text.lower().split(), list[Item]()
    for _ in range(SCANNED_PAGES):
        result = await context.fetch(List(store=f"{kind}s", limit=SCANNED, cursor=cursor))
        for item in result.items:
            if _matches(item, words):
                found.append(item)
                if len(found) == limit:
                    return await _page(context, kind, found, item.seq)
        cursor = result.next_cursor
        if cursor is None:
            break
    return await _page(context, kind, found, cursor)


def _matches(item: Item, words: list[str]) -> bool:
    name = f"{item.body['namespace']}/{item.body['name']}".lower()
    return all(word in name for word in words)


async def _page(context: RequestContext, kind: NodeKind, found: list[Item], cursor: int | None) -> Response:
    rows = [(Node(kind=kind, namespace=item.body["namespace"], name=item.body["name"]), item.body) for item in found]
    owners = await owners_of(context.memory(), [node for node, body in rows if not body.get("owners")])
    named = (
        NamedNode.model_validate({**body, "kind": kind} | ({"owners": owners[node.ref]} if node.ref in owners else {}))
        for node, body in rows
    )
    return page(map(item_json, named), cursor)

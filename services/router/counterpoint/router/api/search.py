"""Search over HTTP: records of a store, and earlier attempts."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse
from pydantic import ConfigDict, Field

from counterpoint.client import readable
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.memory import AsOf, Filter, HybridSearch, Item, List
from counterpoint.proto.messages import Id, ProjectName, Shape
from counterpoint.proto.signature import signature
from counterpoint.router.api.body import RequestBody, item_json, json_body
from counterpoint.router.api.context import Context, RequestContext
from counterpoint.router.api.document_types import reject_unknown_types, types_in_filter
from counterpoint.router.api.jobs import parse_job
from counterpoint.router.api.openapi import request_body
from counterpoint.router.paging import Cursor, Limit, ListPage, page

router = APIRouter(prefix="/v1", tags=["memory"])


class SearchRequest(Filter):
    """A search.

    `also` are other wordings or parts of the question. `vector_weight` 1 is meaning alone, 0 words alone; without one
    each type of text has its own. `neighbours` adds so many passages before and after each, without a score. `as_of` is
    a commit's id or a time: what was there then is searched, by meaning alone.
    """

    text: str = Field(min_length=1, max_length=100_000)
    also: tuple[Annotated[str, Field(min_length=1, max_length=100_000)], ...] = Field(default=(), max_length=4)
    k: int = Field(default=10, ge=1, le=200)
    vector_weight: float | None = Field(default=None, ge=0, le=1)
    neighbours: int = Field(default=0, ge=0, le=3)
    store: str = "chunks"
    as_of: AsOf | None = None
    project: ProjectName | None = None


class SearchHit(Shape):
    """A record of the result, with its own fields. `score` is between 0 and 1 within the result. `integrity`:
    2 said by a person or an operated system, 1 by an agent, 0 by nobody."""

    model_config = ConfigDict(extra="allow")

    store: str
    id: str
    version: int
    integrity: int
    score: float | None = None
    scores: dict[str, float] | None = None


class SearchResults(ListPage[SearchHit]):
    """The result, best first, with the tier and the plan of the search."""

    tier: str
    plan: str
    took_us: int
    ignored: tuple[str, ...] = ()


class ScoredAttempt(Attempt):
    """An attempt and its similarity to the error of the request; 1 is the same error. `integrity`: 2 said by a person
    or an operated system, 1 by an agent, 0 by nobody."""

    score: float | None = None
    integrity: int


@router.post(
    "/search", responses={200: {"model": SearchResults}}, response_model=None, openapi_extra=request_body(SearchRequest)
)
async def search(body: Annotated[RequestBody[SearchRequest], json_body(SearchRequest, "read")]) -> Response:
    """Search a store by words and by meaning. A filter by a type that no document has is an error."""
    context, value = body.context, body.value
    (result,) = await context.memory().query(HybridSearch(**value.model_dump(exclude={"project"})))
    if value.store == "chunks" and not result.items and value.as_of is None:
        await reject_unknown_types(context, types_in_filter(value.where))
    hits = [hit_json(item) for item in result.items]
    how = {"tier": result.tier, "plan": result.plan, "took_us": result.took_us, "ignored": body.ignored}
    return JSONResponse({"items": hits, "next_cursor": None} | how)


def hit_json(item: Item) -> dict[str, Any]:
    """Return a result of a search: the record's own fields, its identity and its scores."""
    item_fields = {"store", "id", "version", "integrity", "score", "scores"}
    return item.body | item.model_dump(mode="json", include=item_fields, exclude_none=True)


@router.get("/attempts", responses={200: {"model": ListPage[ScoredAttempt]}}, response_model=None)
async def attempts(
    context: Context,
    cursor: Cursor,
    error: Annotated[str | None, Query(max_length=16_000, description="An error as it was.")] = None,
    job: Annotated[str | None, Query(description="A job, `NAMESPACE/NAME`.")] = None,
    task_id: Annotated[Id | None, Query(description="A task.")] = None,
    limit: Limit = 50,
) -> Response:
    """List attempts, newest first. With `error`: attempts at the same error, then at similar ones."""
    items, next_cursor = await find_attempts(context, error=error, job=job, task_id=task_id, limit=limit, cursor=cursor)
    return page(items, next_cursor)


async def find_attempts(
    context: RequestContext,
    *,
    error: str | None = None,
    job: str | None = None,
    task_id: str | None,
    limit: int,
    cursor: int | None = None,
) -> tuple[list[dict[str, Any]], int | None]:
    """Return a page of attempts as JSON, those like `error` with their score, and the cursor after it.

    Raises `Denied`, and `Permanent` `invalid`.
    """
    context.require("read")
    where: dict[str, Any] = {"job": (await context.memory().redact_names(parse_job(job))).model_dump()} if job else {}
    if task_id:
        where["task_id"] = task_id
    if not error:
        result = await context.fetch(List(store="attempts", where=where, limit=limit, cursor=cursor))
        return [_attempt_json(*pair) for pair in readable(result.items, Attempt)], result.next_cursor
    exact_matches, similar_items = await context.memory().query(
        List(store="attempts", where=where | {"error_signature": signature(error).digest}, limit=limit),
        HybridSearch(store="attempts", text=error, where=where, k=limit),
    )
    exact = {item.id for item in exact_matches.items}
    similar = [item for item in similar_items.items if item.id not in exact]
    scored = [(_attempt_json(*pair), 1.0) for pair in readable(exact_matches.items, Attempt)]
    scored += [
        (_attempt_json(item, each), (item.scores or {}).get("cosine", 0.0)) for item, each in readable(similar, Attempt)
    ]
    return [each | {"score": score} for each, score in scored[:limit]], None


def _attempt_json(item: Item, attempt: Attempt) -> dict[str, Any]:
    return item_json(attempt, integrity=item.integrity)

"""Search over HTTP: what memory holds about a text, and what was tried before."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import ConfigDict, Field

from counterpoint.proto.attempts import Attempt
from counterpoint.proto.memory import AsOf, Filter, HybridSearch, List
from counterpoint.proto.messages import Id, ProjectName, Shape
from counterpoint.proto.signature import signature
from counterpoint.recall import readable, records
from counterpoint.router.bodies import Page, ignored, page, read_json, shown, value_of
from counterpoint.router.desk import Asking
from counterpoint.router.jobs import job_named
from counterpoint.router.openapi import takes
from counterpoint.router.tasks import Cursor, Limit

router = APIRouter(prefix="/v1", tags=["memory"])


class Search(Filter):
    """What to look for, and in which records.

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


class Hit(Shape):
    """A record that was found: its own fields beside these. `score` is between 0 and 1 within the result. `integrity`:
    2 said by a person or an operated system, 1 by an agent, 0 by nobody."""

    model_config = ConfigDict(extra="allow")

    store: str
    id: str
    version: int
    integrity: int
    score: float | None = None
    scores: dict[str, float] | None = None


class Hits(Page[Hit]):
    """What was found, best first, and which tier found it how."""

    tier: str
    plan: str
    took_us: int
    ignored: tuple[str, ...] = ()


class FoundAttempt(Attempt):
    """An attempt, and how like it is to the error that was asked about; 1 is the same error."""

    score: float | None = None


@router.post("/search", responses={200: {"model": Hits}}, response_model=None, openapi_extra=takes(Search))
async def search(request: Request, asked: Asking) -> Response:
    """The best records of a store by words and by meaning, and how they were found."""
    body = await read_json(request)
    asked = asked.within(body)
    asked.needs("read")
    given = value_of(Search, body)
    (found,) = await asked.memory().query(HybridSearch(**given.model_dump(exclude={"project"})))
    about = {"store", "id", "version", "integrity", "score", "scores"}
    hits = [item.body | item.model_dump(mode="json", include=about, exclude_none=True) for item in found.items]
    how = {"tier": found.tier, "plan": found.plan, "took_us": found.took_us, "ignored": ignored(Search, body)}
    return JSONResponse({"items": hits, "next_cursor": None} | how)


@router.get("/attempts", responses={200: {"model": Page[FoundAttempt]}}, response_model=None)
async def attempts(
    asked: Asking,
    error: Annotated[str | None, Query(max_length=16_000, description="An error as it was.")] = None,
    job: Annotated[str | None, Query(description="A job, `NAMESPACE/NAME`.")] = None,
    task_id: Annotated[Id | None, Query(description="A task.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """What was tried, newest first. With `error` first what was tried for the same error, then for errors like it."""
    asked.needs("read")
    where: dict[str, Any] = {"job": (await asked.memory().harmless(job_named(job))).model_dump()} if job else {}
    if task_id:
        where["task_id"] = task_id
    if not error:
        found = await asked.look(
            List(store="attempts", where=where, limit=limit, cursor=int(cursor) if cursor else None)
        )
        return page(map(shown, records(found.items, Attempt)), found.next_cursor)
    same, like = await asked.memory().query(
        List(store="attempts", where=where | {"error_signature": signature(error).digest}, limit=limit),
        HybridSearch(store="attempts", text=error, where=where, k=limit),
    )
    exact = {item.id for item in same.items}
    found_like = [item for item in like.items if item.id not in exact]
    scored = [(shown(one), 1.0) for one in records(same.items, Attempt)]
    scored += [(shown(one), (item.scores or {}).get("cosine", 0.0)) for item, one in readable(found_like, Attempt)]
    return page((one | {"score": score} for one, score in scored[:limit]), None)

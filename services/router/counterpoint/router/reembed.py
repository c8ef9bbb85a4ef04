"""The model of embeddings over HTTP: which is in use, and changing it while all goes on."""

from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from counterpoint.proto.memory import Reembed
from counterpoint.proto.messages import Shape
from counterpoint.router.bodies import ignored, read_json, value_of
from counterpoint.router.desk import Asked, Asking
from counterpoint.router.openapi import takes

router = APIRouter(prefix="/v1", tags=["operate"])


class ChangeModel(Shape):
    """`begin` makes vectors of `model` beside those that are searched, `switch` searches by them when they are complete
    (`unindexed`: also where a large project has no index of them yet), `rollback` goes back to the model before, `drop`
    forgets the vectors that are not searched by."""

    act: Literal["begin", "switch", "rollback", "drop"]
    model: str | None = Field(default=None, min_length=1, max_length=210)
    unindexed: bool = False


class RefusedRecord(Shape):
    """A record that the model has no vector of, and why; it is found by its words alone."""

    project: str
    store: str
    id: str
    reason: str


class ModelsInUse(Shape):
    """The model that is searched by in all projects, and the `other` one, where there is one.

    `vectors` and `refused` are counted of the other model, else of the active one; together they are the `of` records
    when it is complete. `state`: the other's vectors are being made, are complete, or are kept to go back to.
    `unindexed` are large projects without an index of that model. `problem` is why no more vectors are made now.
    """

    active: str
    dimensions: int
    state: Literal["none", "filling", "ready", "kept"] | str
    other: str | None = None
    other_dimensions: int | None = None
    vectors: int = 0
    of: int = 0
    refused: int = 0
    refused_records: tuple[RefusedRecord, ...] = ()
    unindexed: tuple[str, ...] = ()
    per_s: float | None = None
    problem: str | None = None


@router.get("/reembed", responses={200: {"model": ModelsInUse}}, response_model=None)
async def models(asked: Asking) -> Response:
    """Which models are in use, and how far the other one's vectors have come. For who operates all projects."""
    return JSONResponse(await _report(asked, Reembed()))


@router.post("/reembed", responses={200: {"model": ModelsInUse}}, response_model=None, openapi_extra=takes(ChangeModel))
async def change(request: Request, asked: Asking) -> Response:
    """Begin to change the model, switch to the other one, go back, or forget it. For who operates all projects.

    What is not complete, or does not fit what is in use, is 409 `conflict`; where there is no other model it is 404.
    """
    body = await read_json(request)
    asked = asked.within(body)
    asked.needs("operate")
    given = value_of(ChangeModel, body)
    report = await _report(asked, Reembed(**given.model_dump()))
    return JSONResponse(report | {"ignored": ignored(ChangeModel, body)})


async def _report(asked: Asked, query: Reembed) -> dict[str, Any]:
    asked.needs("operate")
    (found,) = await asked.memory().query(query)
    return found.report or {}

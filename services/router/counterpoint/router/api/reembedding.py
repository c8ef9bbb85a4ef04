"""Embedding models over HTTP: the models in use, and a change without downtime."""

from typing import Annotated, Literal

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from counterpoint.proto.commands import ChangeEmbeddingModel
from counterpoint.proto.memory import Reembed
from counterpoint.proto.messages import Shape
from counterpoint.router.api.body import RequestBody, json_body
from counterpoint.router.api.context import Context
from counterpoint.router.api.openapi import request_body

router = APIRouter(prefix="/v1", tags=["operate"])


class ReembeddingRequest(Shape):
    """A step of a model change.

    `begin` computes vectors of `model` beside the active ones. `switch` activates them when they are complete
    (`unindexed`: even where a large project has no index yet). `rollback` reactivates the model before. `drop` deletes
    the inactive vectors."""

    act: Literal["begin", "switch", "rollback", "drop"]
    model: str | None = Field(default=None, min_length=1, max_length=210)
    unindexed: bool = False


class RefusedRecord(Shape):
    """A record without a vector, and the reason. Lexical search still finds it."""

    project: str
    store: str
    id: str
    reason: str


class ModelsInUse(Shape):
    """The active embedding model of all projects, and the `other` one, if any.

    `vectors` and `refused` count records of the other model, else of the active one; complete, they add up to `of`.
    `state`: the other model is being filled, is ready, or is kept for a rollback. `unindexed` are large projects
    without an index of that model. `problem` is the reason for which no vectors are computed now.
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
async def models(context: Context) -> Response:
    """Return the models in use and the progress of a change. For operators of all projects."""
    context.require("operate")
    (result,) = await context.memory().query(Reembed())
    return JSONResponse(result.report or {})


@router.post(
    "/reembed",
    responses={200: {"model": ModelsInUse}},
    response_model=None,
    openapi_extra=request_body(ReembeddingRequest),
)
async def change(
    body: Annotated[RequestBody[ReembeddingRequest], json_body(ReembeddingRequest, "operate")],
) -> Response:
    """Begin, switch, roll back or drop a model change. For operators of all projects.

    An incomplete or unsuitable model is 409 `conflict`; a missing other model is 404.
    """
    command = ChangeEmbeddingModel(**body.value.model_dump())
    reply = await body.context.memory().command(command)
    return JSONResponse((reply.report or {}) | {"ignored": body.ignored})

"""The audit log over HTTP: the check that nothing was changed, proofs, checkpoints, and refusals explained."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from counterpoint.proto.memory import AuditQuery, Checkpoints, Explain, Leaves, Prove, Verify
from counterpoint.proto.messages import Id, Shape, Time
from counterpoint.router.bodies import Page, read_json, value_of
from counterpoint.router.desk import Asked, Asking
from counterpoint.router.interventions import unknown_task
from counterpoint.router.openapi import takes
from counterpoint.router.tasks import Cursor, Limit

router = APIRouter(prefix="/v1/audit", tags=["operate"])

PATIENCE_S = 300.0
"""A check reads the whole log: some ten seconds for a million leaves."""


class Verification(Shape):
    """What the check came to: `ok`, how much was checked, the root of the tree, and the first faults.

    `window` are the leaves after the newest checkpoint, which nothing outside the database can vouch for yet; `unread`
    are the places of checkpoints that did not answer.
    """

    ok: bool
    project: str
    task_id: str | None = None
    leaves: int
    commits: int
    refusals: int
    erased: int
    records: int
    head: dict[str, Any]
    checkpoint: dict[str, Any] | None
    checkpoints: int
    window: dict[str, Any]
    key: str
    unread: tuple[str, ...] = ()
    broken: tuple[str, ...]
    broken_count: int


class KeptCheckpoints(Shape):
    """Signed notes that were kept, one after the other."""

    checkpoints: str


class Proofs(Shape):
    """Leaves, each with its path to the root of `checkpoint`, a signed note. `next` is where the rest begins."""

    key: str
    checkpoint: str
    size: int
    leaves: tuple[dict[str, Any], ...]
    next: int | None = None


class SignedCheckpoint(Shape):
    """A checkpoint of the log: how many leaves it had, their root, and the signed note that says so."""

    size: int
    root: str
    note: str
    at: Time


class Explained(Shape):
    """A refusal: who asked for what, which rule stood in the way, what would have been needed; `text` says it."""

    id: str
    project: str
    task_id: str | None = None
    at: Time
    service: str | None = None
    principal: str | None = None
    message_id: str | None = None
    asked: str | None = None
    rule: str | None = None
    needed: str | None = None
    erased: bool = False
    text: str


@router.get("/verify", responses={200: {"model": Verification}}, response_model=None)
async def verify(
    asked: Asking, task_id: Annotated[Id | None, Query(description="Count what is of this task.")] = None
) -> Response:
    """Check leaves, chains, tree and records. `ok` is false, with status 200, when something was changed.

    A task of which the log knows nothing is 404 `unknown_task`.
    """
    report = await _report(asked, Verify(task_id=task_id))
    if task_id and report["ok"] and not report["leaves"]:
        raise unknown_task(asked.project)
    return JSONResponse(report)


@router.post(
    "/verify",
    responses={200: {"model": Verification}},
    response_model=None,
    openapi_extra=takes(KeptCheckpoints),
)
async def verify_kept(request: Request, asked: Asking) -> Response:
    """The same, and compare the tree with checkpoints that you kept."""
    asked.needs("audit")
    kept = value_of(KeptCheckpoints, await read_json(request))
    return JSONResponse(await _report(asked, Verify(checkpoints=kept.checkpoints)))


@router.get("/proofs/{task_id}", responses={200: {"model": Proofs}}, response_model=None)
async def proofs(
    asked: Asking,
    task_id: Annotated[Id, Path(description="Whose leaves.")],
    after: Annotated[int, Query(ge=0, lt=2**63, description="The position after which to go on.")] = 0,
    limit: Limit = 100,
) -> Response:
    """Prove that what was written about a task is in the log, by a checkpoint that anybody may check.

    A task of which the log knows nothing is 404 `unknown_task`.
    """
    report = await _report(asked, Prove(task_id=task_id, after=after, limit=limit))
    if not report["leaves"] and not after:
        raise unknown_task(asked.project)
    return JSONResponse(report)


@router.get("/leaves", response_model=None)
async def leaves(
    asked: Asking,
    after: Annotated[int, Query(ge=0, lt=2**63, description="The position after which to go on.")] = 0,
    limit: Annotated[int, Query(ge=1, le=4000)] = 1000,
) -> Response:
    """All leaves of the log in their order: those of the project whole, those of others by their hash."""
    return JSONResponse(await _report(asked, Leaves(after=after, limit=limit)))


@router.get("/checkpoints", responses={200: {"model": Page[SignedCheckpoint]}}, response_model=None)
async def checkpoints(asked: Asking, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """Signed checkpoints, newest first."""
    return _page(await _report(asked, Checkpoints(before=int(cursor) if cursor else None, limit=limit)))


@router.get("/refusals", responses={200: {"model": Page[Explained]}}, response_model=None)
async def refusals(asked: Asking, limit: Limit = 20, cursor: Cursor = None) -> Response:
    """What was refused in the project, newest first, in plain words."""
    return _page(await _report(asked, Explain(before=int(cursor) if cursor else None, limit=limit)))


@router.get("/refusals/{refusal_id}", responses={200: {"model": Explained}}, response_model=None)
async def refusal(
    asked: Asking, refusal_id: Annotated[Id, Path(description="The id that the refusal was given.")]
) -> Response:
    """One refusal: who asked for what, which rule stood in the way, and what would have been needed."""
    return JSONResponse((await _report(asked, Explain(id=refusal_id)))["items"][0])


async def _report(asked: Asked, query: AuditQuery) -> dict[str, Any]:
    asked.needs("audit")
    (found,) = await asked.memory().query(query, timeout_s=PATIENCE_S)
    return found.report or {}


def _page(report: dict[str, Any]) -> Response:
    following = report["next"]
    return JSONResponse({"items": report["items"], "next_cursor": None if following is None else str(following)})

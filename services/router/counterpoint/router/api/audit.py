"""Audit log over HTTP: verification, proofs, checkpoints and refusals."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import JSONResponse

from counterpoint.proto.memory import AuditLeaves, AuditQuery, Checkpoints, Explain, Prove, Verify
from counterpoint.proto.messages import Id, Shape, Time
from counterpoint.router.api.body import RequestBody, json_body
from counterpoint.router.api.context import Context, RequestContext
from counterpoint.router.api.openapi import request_body
from counterpoint.router.intake.interventions import unknown_task
from counterpoint.router.paging import Cursor, Limit, ListPage

router = APIRouter(prefix="/v1/audit", tags=["operate"])

VERIFY_TIMEOUT_S = 300.0
"""Timeout of a verification, which reads the whole log: about ten seconds for a million leaves."""


class Verification(Shape):
    """Result of a verification: `ok`, the counts of what was checked, the root of the tree, and the first faults.

    `window` are the leaves after the newest checkpoint; no copy outside the database covers them yet. `unread` are the
    checkpoint copies that did not answer.
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


class CheckpointNotes(Shape):
    """Signed checkpoint notes, concatenated."""

    checkpoints: str


class Proofs(Shape):
    """Leaves with their paths to the root of `checkpoint`, a signed note. `next` is the position of the next page."""

    key: str
    checkpoint: str
    size: int
    leaves: tuple[dict[str, Any], ...]
    next: int | None = None


class SignedCheckpoint(Shape):
    """A checkpoint of the log: the number of leaves, their root, and the signed note."""

    size: int
    root: str
    note: str
    at: Time


class RefusalExplanation(Shape):
    """A refusal: the caller, its request, the rule, and the missing right. `text` is a readable summary."""

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
    context: Context, task_id: Annotated[Id | None, Query(description="Count the leaves of this task.")] = None
) -> Response:
    """Verify leaves, chains, tree and records. After a change `ok` is false, with status 200.

    A task that is not in the log is 404 `unknown_task`.
    """
    report = await _report(context, Verify(task_id=task_id))
    if task_id and report["ok"] and not report["leaves"]:
        raise unknown_task(context.project)
    return JSONResponse(report)


@router.post(
    "/verify",
    responses={200: {"model": Verification}},
    response_model=None,
    openapi_extra=request_body(CheckpointNotes),
)
async def verify_kept(
    body: Annotated[RequestBody[CheckpointNotes], json_body(CheckpointNotes, "audit", project_field=False)],
) -> Response:
    """Verify the log, and compare the tree with your copies of checkpoints."""
    context, notes = body.context, body.value
    return JSONResponse(await _report(context, Verify(checkpoints=notes.checkpoints)))


@router.get("/proofs/{task_id}", responses={200: {"model": Proofs}}, response_model=None)
async def proofs(
    context: Context,
    task_id: Annotated[Id, Path(description="The task's id.")],
    after: Annotated[int, Query(ge=0, lt=2**63, description="Return the leaves after this position.")] = 0,
    limit: Limit = 100,
) -> Response:
    """Return inclusion proofs of the leaves of a task, against a signed checkpoint.

    A task that is not in the log is 404 `unknown_task`.
    """
    report = await _report(context, Prove(task_id=task_id, after=after, limit=limit))
    if not report["leaves"] and not after:
        raise unknown_task(context.project)
    return JSONResponse(report)


@router.get("/leaves", response_model=None)
async def leaves(
    context: Context,
    after: Annotated[int, Query(ge=0, lt=2**63, description="Return the leaves after this position.")] = 0,
    limit: Annotated[int, Query(ge=1, le=4000)] = 1000,
) -> Response:
    """List the leaves of the log in order. Leaves of other projects contain only their hash."""
    return JSONResponse(await _report(context, AuditLeaves(after=after, limit=limit)))


@router.get("/checkpoints", responses={200: {"model": ListPage[SignedCheckpoint]}}, response_model=None)
async def checkpoints(context: Context, cursor: Cursor, limit: Limit = 50) -> Response:
    """List signed checkpoints, newest first."""
    return _page(await _report(context, Checkpoints(before=cursor, limit=limit)))


@router.get("/refusals", responses={200: {"model": ListPage[RefusalExplanation]}}, response_model=None)
async def refusals(context: Context, cursor: Cursor, limit: Limit = 20) -> Response:
    """List and explain the refusals of the project, newest first."""
    return _page(await _report(context, Explain(before=cursor, limit=limit)))


@router.get("/refusals/{refusal_id}", responses={200: {"model": RefusalExplanation}}, response_model=None)
async def refusal(context: Context, refusal_id: Annotated[Id, Path(description="The refusal's id.")]) -> Response:
    """Explain a refusal: the caller, its request, the rule, and the missing right."""
    return JSONResponse((await _report(context, Explain(id=refusal_id)))["items"][0])


async def _report(context: RequestContext, query: AuditQuery) -> dict[str, Any]:
    context.require("audit")
    (report,) = await context.memory().query(query, timeout_s=VERIFY_TIMEOUT_S)
    return report.report or {}


def _page(report: dict[str, Any]) -> Response:
    following = report["next"]
    return JSONResponse({"items": report["items"], "next_cursor": None if following is None else str(following)})

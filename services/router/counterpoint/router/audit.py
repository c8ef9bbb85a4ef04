"""The audit log over HTTP: the check that nothing was changed afterwards."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from counterpoint.proto.memory import Verify
from counterpoint.proto.messages import Id, Shape
from counterpoint.router.desk import Asking
from counterpoint.router.interventions import unknown_task

router = APIRouter(prefix="/v1/audit", tags=["operate"])


class Verification(Shape):
    """What the check came to: `ok`, how much was checked, the head of the chain, and the first faults."""

    ok: bool
    project: str
    task_id: str | None = None
    leaves: int
    commits: int
    refusals: int
    records: int
    head: dict[str, Any]
    broken: tuple[str, ...]
    broken_count: int


@router.get("/verify", responses={200: {"model": Verification}}, response_model=None)
async def verify(
    asked: Asking, task_id: Annotated[Id | None, Query(description="Count what is of this task.")] = None
) -> Response:
    """Check hashes, chain and records. `ok` is false, with status 200, when something was changed.

    A task of which the log knows nothing is 404 `unknown_task`.
    """
    asked.needs("audit")
    (found,) = await asked.memory().query(Verify(task_id=task_id))
    if task_id and found.report and found.report["ok"] and not found.report["leaves"]:
        raise unknown_task(asked.project)
    return JSONResponse(found.report)

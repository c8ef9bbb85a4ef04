"""Replay over HTTP: the steps of an ended task with everything that each was given, compared with the audit log.

The decisions run again at the caller: `counterpoint replay` (docs/replay.md).
"""

import json
from typing import Any

from fastapi import APIRouter, Response

from counterpoint.client import Memory
from counterpoint.client.replay import GivenAnswer
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.memory import Item, Prove, RecordedAnswer, RecordedStep, StepProblem, StepRecord
from counterpoint.proto.messages import Shape
from counterpoint.proto.tasks import ENDED
from counterpoint.router.api.body import item_json
from counterpoint.router.api.context import Context, RequestContext
from counterpoint.router.intake.interventions import unknown_task
from counterpoint.router.paging import Cursor, Limit, ListPage, TaskId, page

router = APIRouter(prefix="/v1", tags=["operate"])


class ReplayStep(Shape):
    """A step of a task: its commit, and the answers to each request of its delivery, as they were given.

    `record` is absent if the step was erased. `problems` are the reasons why it cannot be rebuilt.
    """

    leaf: int
    record: StepRecord | None = None
    requests: tuple[tuple[GivenAnswer, ...], ...] = ()
    problems: tuple[StepProblem, ...] = ()


@router.post("/tasks/{task_id}/replay", responses={200: {"model": ListPage[ReplayStep]}}, response_model=None)
async def replay(context: Context, task_id: TaskId, cursor: Cursor, limit: Limit = 10) -> Response:
    """Return the recorded steps of an ended task, in the order of the audit log. Nothing is written or sent.

    Needs the roles `read` and `audit`. A task that has not ended is 409 `conflict`.
    """
    context.require("read")
    context.require("audit")
    memory = context.memory()
    task = await _task(memory, task_id)
    (found,) = await memory.query(Prove(task_id=task_id, after=cursor or 0, limit=limit))
    report = found.report or {}
    if task is None and any(leaf["body"] is None for leaf in report["leaves"]):
        raise Permanent(ErrorCode.NOT_FOUND, (Problem(field="task_id", problem="was erased"),))
    if task is None:
        raise unknown_task(context.project)
    steps = [step for leaf in report["leaves"] if (step := await _step(memory, leaf)) is not None]
    return page((item_json(step) for step in steps), report["next"])


async def ended_task(context: RequestContext, task_id: str) -> Item:
    """Return the record of an ended task of the project. Raises `Permanent` `unknown_task` or `conflict`."""
    task = await _task(context.memory(), task_id)
    if task is None:
        raise unknown_task(context.project)
    return task


async def _task(memory: Memory, task_id: str) -> Item | None:
    """Return the record of a task, None without one. Raises `Permanent` `conflict` if it has not ended."""
    task = await memory.get("tasks", task_id)
    if task is not None and task.body["state"] not in ENDED:
        problem = Problem(field="task_id", problem=f"has not ended: it is {task.body['state']}")
        raise Permanent(ErrorCode.CONFLICT, (problem,))
    return task


async def _step(memory: Memory, leaf: dict[str, Any]) -> ReplayStep | None:
    """Return the step of a leaf; None for a refusal."""
    if leaf["body"] is None:
        return ReplayStep(leaf=leaf["index"] + 1, problems=(StepProblem(kind="erased", problem="was erased"),))
    commit_id = json.loads(leaf["body"]).get("commit")
    if commit_id is None:
        return None
    (found,) = await memory.query(RecordedStep(commit_id=commit_id))
    record = StepRecord.model_validate(found.report)
    requests, problems = [], list(record.problems)
    for request, count in enumerate(record.answers):
        answers = []
        for number in range(count):
            (result,) = await memory.query(RecordedAnswer(commit_id=commit_id, request=request, number=number))
            report = result.report or {}
            problems += map(StepProblem.model_validate, report["problems"])
            answers.append(GivenAnswer(query=report["query"], result=result.model_copy(update={"report": None})))
        requests.append(tuple(answers))
    return ReplayStep(
        leaf=leaf["index"] + 1,
        record=record,
        requests=tuple(requests),
        problems=tuple(dict.fromkeys(problems)),
    )

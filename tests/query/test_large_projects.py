"""Projects grow; no handler fails when a project holds more than one message of the bus carries."""

from datetime import UTC, datetime
from typing import Any

import pytest
from memory_service.house import House, task_body

from counterpoint.client import Memory, put
from counterpoint.developer.handlers import handle_delegated
from counterpoint.graph.edges import EdgeKind, LineageEdge
from counterpoint.graph.lineage import blast_radius_of, lineage_of
from counterpoint.graph.names import job
from counterpoint.manager.task_history import read_task_history
from counterpoint.proto.attempts import Attempt, ReportOutcome
from counterpoint.proto.line import Action
from counterpoint.proto.memory import Origin, Write
from counterpoint.proto.signature import signature
from counterpoint.proto.tasks import SubmitTask, TaskDelegated
from counterpoint.router.intake.interventions import Reporter, outcome
from counterpoint.router.intake.submissions import STORE, Submission, task_key

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def memory_of(house: House, caller: str, origin: Origin) -> Memory:
    """The client that a handler of `caller` gets."""

    async def transport(subject: str, body: bytes, timeout_s: float) -> bytes:
        return await house.door.query(caller, body)

    return Memory(transport, caller, origin, NOW)


def trace(n: int) -> str:
    """A stack trace of eight kilobytes that ends as the others do."""
    frames = "".join(
        f'  File "/srv/app/m{k}.py", line {k}, in step_{n}_{k}\n    return call(step, k)\n' for k in range(120)
    )
    return f"Traceback (most recent call last):\n{frames}OSError: resolver 10.0.0.2 timed out"


async def attempted(house: House, project: str, task: str, count: int, **fields: Any) -> str:
    """Failed attempts at a task, each in a commit of its own; the id of the message that handed it on."""
    delegated = await house.delegated(project, task)
    routed = house.delivery(await house.routed(project, task))
    for n in range(1, count + 1):
        values = {"tried": f"restart resolver {n}", "error_message": trace(n), "outcome_error": trace(n), **fields}
        body = Attempt(
            attempt_id=f"{task}-{n}",
            task_id=task,
            project=project,
            attempt=n,
            description="the nightly job failed",
            error_signature=signature(trace(n)).digest,
            by="developer",
            outcome="failed",
            at=NOW,
            **values,
        )
        write = put("attempts", body.attempt_id, body)
        await house.apply("manager", routed, step=f"{n}", last=False, writes=(write,))
    return delegated


async def worked(house: House, project: str, task_id: str, delegated: str) -> str:
    """All that the developer commits for a task."""
    task = SubmitTask(kind="troubleshoot", description="the nightly job failed", error_message=trace(0))
    message = TaskDelegated(task_id=task_id, project=project, session_id="s", attempt=1, task=task, lane="investigate")
    commit = await handle_delegated(message, memory_of(house, "developer", house.delivery(delegated)))
    return str(commit.model_dump())


@pytest.mark.slow
async def test_the_developer_works_and_says_that_it_did_not_see_all(house: House, project: str) -> None:
    await attempted(house, project, "t-before", 70)
    said = await worked(house, project, "t-now", await house.delegated(project, "t-now"))
    assert "attempts at this error have failed" in said
    assert "limited to what fits into one reply" in said


async def test_the_developer_knows_each_attempt_of_its_own(house: House, project: str) -> None:
    own = await attempted(house, project, "t-now", 6, outcome_error="x" * 150_000)
    assert "attempts at this error have failed 6 times" in await worked(house, project, "t-now", own)


async def test_the_manager_reads_every_attempt_of_a_task(house: House, project: str) -> None:
    await attempted(house, project, "t-1", 5, error_message="\u00e4" * 140_000, outcome_error=None)
    body = task_body("t-1", project=project, description="why", submitted_by="ops", submitted_at=NOW.isoformat())
    task = Write(store="tasks", id="t-1", body=body, expect=1)
    await house.apply("manager", house.delivery(await house.reported(project, "t-1")), writes=(task,))
    reported = house.delivery(await house.reported(project, "t-1"))
    dossier = await read_task_history(memory_of(house, "manager", reported), "t-1")
    assert list(dossier.attempts) == [1, 2, 3, 4, 5]
    assert dossier.next_attempt == 6


async def test_a_walk_that_is_cut_is_truncated(house: House, project: str) -> None:
    start = job("orders", "load")
    edges = [
        LineageEdge(source=start.ref, target=job("orders", f"{'x' * 1500}-{n}").ref, kind=EdgeKind.CONTROL)
        for n in range(900)
    ]
    for at in range(0, len(edges), 100):
        writes = tuple(put("edges", edge.id, edge) for edge in edges[at : at + 100])
        await house.apply("lineage", house.standing(project), writes=writes)
    memory = memory_of(house, "lineage", house.standing(project))
    radius = await blast_radius_of(memory, start, limit=5000)
    assert radius.truncated
    assert 100 < len(radius.downstream) < 900
    assert (await lineage_of(memory, start, limit=5000)).truncated


async def test_an_outcome_follows_its_proposal_on_a_line_of_any_length(house: House, project: str) -> None:
    submission = Submission(
        task_id="t-1",
        project=project,
        content_sha256="-",
        kind="question",
        description="why",
        submitted_by="ops",
        submitted_by_kind="person",
        submitted_at=NOW,
    )
    await house.apply("router", house.standing(project), writes=(put(STORE, task_key("t-1"), submission),))
    routed = await house.routed(project, "t-1")
    for n in range(100):
        action = Action(
            action_id=f"a-{n}",
            task_id="t-1",
            agent="manager",
            kind="assess" if n else "propose",
            reasoning="x" * 16_000,
            at=NOW,
        )
        write = put("actions", action.action_id, action)
        await house.apply("manager", house.delivery(routed), step=f"{n}", last=False, writes=(write,))
    report = ReportOutcome(task_id="t-1", outcome="succeeded")
    memory = memory_of(house, "router", house.standing(project, "t-1"))
    (said,) = (await outcome(memory, report, Reporter("ops", "person"), "reported")).writes
    assert said.body is not None
    assert said.body["after"] == ["a-0"]

"""Tokens of replays: for the reads of a recorded delivery, the ledger of the sandbox and the budget of the replay."""

from decimal import Decimal
from typing import Any

import pytest
from memory_service.house import PERSON, House
from memory_service.learning_project import GOOD, commit_of, ingest, learn

from counterpoint.guard.capabilities import unverified_grant
from counterpoint.guard.policy import policy
from counterpoint.memory.provenance.read_sets import ReadSets
from counterpoint.proto.commands import CommandReply, CommandRequest, IssueReplayToken
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Origin, Ref, Write
from counterpoint.proto.principals import Principal
from counterpoint.proto.replays import sandbox_project
from counterpoint.proto.subjects import PROJECT_PATTERN
from counterpoint.proto.tasks import Budget

JOB = "0" * 32
BUDGET = Budget(usd=Decimal("0.1"))


async def request_token(
    house: House, origin: Origin, commit_id: str, caller: str = "router", **more: Any
) -> CommandReply:
    """The reply to a request for a token."""
    command = IssueReplayToken(**{"task_id": "t-1", "commit_id": commit_id, "job": JOB, "budget": BUDGET, **more})
    request = CommandRequest(origin=origin, command=command)
    return CommandReply.model_validate_json(await house.door.command(caller, request.model_dump_json().encode()))


async def code(house: House, origin: Origin, commit_id: str, **more: Any) -> str:
    """The detail of the refusal."""
    reply = await request_token(house, origin, commit_id, **more)
    assert reply.token is None
    assert reply.refusal is not None
    return reply.refusal.code


@pytest.fixture
async def delivery(house: House, project: str) -> str:
    """A task whose developer read a runbook: the commit of its delivery."""
    await ingest(house, project, GOOD)
    await learn(house, project, "t-1")
    return await commit_of(house, project, "attempts", "t-1-1")


async def raised(house: House, project: str, label: int) -> None:
    """The runbook has a higher label than when it was read."""
    async with house.superuser() as connection:
        await connection.execute(
            "UPDATE records SET label = $2 WHERE project = $1 AND store = 'chunks'", project, label
        )


async def principal(house: House, name: str, projects: tuple[str, ...], roles: tuple[Any, ...]) -> str:
    body = Principal(name=name, kind="person", projects=projects, roles=roles).model_dump(exclude_none=True)
    origin = house.standing("default", principal=PERSON)
    await house.apply("router", origin, writes=(Write(store="principals", id=name, body=body),))
    return name


async def test_a_token_pays_in_the_sandbox_and_its_calls_have_the_label_of_the_reads(
    house: House, project: str, delivery: str
) -> None:
    held = (await request_token(house, house.standing(project, principal=PERSON), delivery)).token
    assert held is not None
    grant = unverified_grant(held)
    sandbox = sandbox_project(project)
    assert (grant.project, grant.task, grant.message) == (sandbox, None, f"job:{JOB}")
    assert (grant.budget, grant.agents, grant.audience) == (BUDGET, {"developer"}, "manager")
    assert {right for _, right in grant.rights} == {"read", "write", "call"}
    assert {store for store, right in grant.rights if right == "write"} == {"spend", "model_calls"}
    origin = Origin(message_id=grant.message, project=sandbox, capability=held, run=7)
    await house.apply(
        "manager", origin, step="reserve", last=False, writes=(Write(store="model_calls", id="c-1", body={}),)
    )
    async with house.superuser() as connection:
        stamp = "SELECT label, integrity FROM records WHERE project = $1 AND store = 'model_calls'"
        row = await connection.fetchrow(stamp, sandbox)
    assert tuple(row) == (policy().level("internal"), 0), "the reply of a model is nobody's word"
    await house.refusal("manager", origin.model_copy(update={"project": project}), "project",
                        step="x", last=False, writes=(Write(store="spend", id="t-1", body={}),))  # fmt: skip


async def test_a_replay_above_the_clearance_of_the_providers_gets_no_token(
    house: House, project: str, delivery: str
) -> None:
    origin = house.standing(project, principal=PERSON)
    assert (await request_token(house, origin, delivery)).token
    await raised(house, project, policy().level("confidential"))
    assert await code(house, origin, delivery) == "label"


async def test_additional_reads_of_a_replay_count_for_its_token(house: House, project: str) -> None:
    await learn(house, project, "t-1", searches=False)
    delivery = await commit_of(house, project, "attempts", "t-1-1")
    await ingest(house, project, GOOD)
    await raised(house, project, policy().level("confidential"))
    origin = house.standing(project, principal=PERSON)
    assert (await request_token(house, origin, delivery)).token
    async with house.superuser() as connection:
        chunk = await connection.fetchval("SELECT id FROM records WHERE project = $1 AND store = 'chunks'", project)
    read = (Ref(store="chunks", id=chunk, version=1),)
    assert await code(house, origin, delivery, read=read) == "label"
    unknown = (Ref(store="chunks", id=chunk, version=9),)
    assert await code(house, origin, delivery, read=unknown) == "not_found"


async def test_only_a_delivery_of_the_task_and_the_project_is_replayed(
    house: House, project: str, delivery: str
) -> None:
    origin = house.standing(project, principal=PERSON)
    assert await code(house, origin, delivery, task_id="t-2") == "not_found"
    assert await code(house, origin, new_id()) == "not_found"
    assert await code(house, origin, "none") == "not_found"
    assert await code(house, house.standing(f"{project}-x", principal=PERSON), delivery) == "not_found"


async def test_a_principal_needs_the_roles_of_both_projects(house: House, project: str, delivery: str) -> None:
    sandbox = sandbox_project(project)
    may = await principal(house, f"may-{project}", (project, sandbox), ("read", "audit", "submit"))
    assert (await request_token(house, house.standing(project, principal=may), delivery)).token
    unpaid = await principal(house, f"unpaid-{project}", (project,), ("read", "audit", "submit"))
    assert await code(house, house.standing(project, principal=unpaid), delivery) == "role"
    for roles in (("read", "submit"), ("audit", "submit"), ("submit",)):
        poor = await principal(house, f"{'-'.join(roles)}-{project}", (project, sandbox), roles)
        assert await code(house, house.standing(project, principal=poor), delivery) in ("store", "role")
    assert await code(house, house.standing(project), delivery) == "role"
    for caller in ("developer", "lineage", "manager"):
        assert await code(house, house.standing(project, principal=may), delivery, caller=caller) in ("grant", "store")


def test_a_note_without_items_restricts_all_that_is_written_for_its_message() -> None:
    reads = ReadSets(10)
    reads.note(("replay", "job:1", 0, 0), [], 0, 2)
    reads.note(("manager", "job:1", 0, 7), [])
    found = reads.provenance_of("job:1")
    assert (found.label, found.integrity) == (2, 0)


@pytest.mark.parametrize("length", [1, 55, 56, 57, 63])
def test_the_sandbox_of_a_project_has_a_legal_name_of_its_own(length: int) -> None:
    names = {sandbox_project(project) for project in ("a" * length, "a" * (length - 1) + "b")}
    assert len(names) == 2
    assert all(PROJECT_PATTERN.fullmatch(name) for name in names)

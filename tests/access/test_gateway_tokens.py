"""Gateway tokens: made for what was read, good for one task and the ledger alone, and in the gateway's hands only."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from memory_service.house import ROUTED, House, task_body

from counterpoint.guard.capabilities import mint, unverified_grant
from counterpoint.guard.policy import policy
from counterpoint.memory.access import diode
from counterpoint.memory.access.tokens import Tokens
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import (
    DeadLetter,
    Get,
    List,
    Origin,
    Outgoing,
    QueryReply,
    QueryRequest,
    TokenPurpose,
    Write,
)
from counterpoint.proto.memory import GatewayToken as Wanted


async def request_token(
    house: House, caller: str, origin: Origin, *, reads: int = 0, purpose: TokenPurpose = "model"
) -> QueryReply:
    """The reply to a request for a token."""
    request = QueryRequest(origin=origin, gateway=Wanted(purpose=purpose, reads=reads))
    return QueryReply.model_validate_json(await house.door.query(caller, request.model_dump_json().encode()))


async def token(house: House, origin: Origin, **how: Any) -> str:
    """A token for the developer."""
    reply = await request_token(house, "developer", origin, **how)
    assert reply.token is not None, reply.refusal
    return reply.token


async def code(house: House, caller: str, origin: Origin, **how: Any) -> str:
    """The detail of the refusal."""
    reply = await request_token(house, caller, origin, **how)
    assert reply.token is None
    assert reply.refusal is not None
    return reply.refusal.code


def paid(house: House, held: str, **changes: Any) -> Origin:
    """The origin of the gateway that was given a token."""
    grant = unverified_grant(held)
    values = {"message_id": grant.message, "project": grant.project, "task_id": grant.task, "capability": held}
    return Origin(**{**values, "run": 7, **changes})


def reservation(task: str = "t-1", record_id: str = "c-1") -> tuple[Write, ...]:
    """Return the writes of the gateway before a call."""
    return (Write(store="model_calls", id=record_id, body={"task_id": task}),)


async def confidential(house: House, project: str, record_id: str) -> None:
    """A record that the developer may read, but that no provider may be told: it rests on what is confidential."""
    letter = DeadLetter(code="x", subject="intake", body="{}")
    await house.apply("manager", house.delivery(await house.reported(project, "t-0")), step="dead", dead_letter=letter)
    reading = house.standing(project, record_id)
    assert (await house.answer("router", reading, List(store="dead_letters"))).items
    routed = Outgoing(type=ROUTED, data={"task_id": record_id})
    sent = (await house.apply("router", reading, reads=1, messages=(routed,))).message_ids[0]
    write = Write(store="sessions", id=record_id, body={"summary": "the salary run"})
    await house.apply("manager", house.delivery(sent), writes=(write,))


async def test_a_gateway_token_reserves_for_its_own_task_only(house: House, project: str) -> None:
    held = await token(house, house.delivery(await house.delegated(project, "t-1")))
    await house.apply("manager", paid(house, held), step="reserve", last=False, writes=reservation())
    await house.refusal("manager", paid(house, held), "task", step="a", last=False, writes=reservation("t-2", "c-2"))
    for store in ("sessions", "attempts", "actions", "tasks"):
        write = Write(store=store, id="x", body={"task_id": "t-1"})
        await house.refusal("manager", paid(house, held), "step" if store == "tasks" else "store", step=f"b {store}",
                            last=False, writes=(write,))  # fmt: skip
    await house.refusal("manager", paid(house, held), "store", Get(store="sessions", id="x"))


async def test_a_gateway_token_is_refused_from_other_callers_and_origins(house: House, project: str) -> None:
    held = await token(house, house.delivery(await house.delegated(project, "t-1")))
    for caller in ("developer", "router", "lineage"):
        await house.refusal(caller, paid(house, held), "audience", step="a", last=False, writes=reservation())
    elsewhere = f"p-{new_id()}"
    await house.refusal("manager", paid(house, held, project=elsewhere), "project", step="a", writes=reservation())
    await house.refusal("manager", paid(house, held, task_id="t-2"), "task", step="a", writes=reservation())
    await house.refusal("manager", paid(house, held, message_id=new_id()), "message", step="a", writes=reservation())


async def test_a_gateway_token_expires_within_a_minute(house: House, project: str) -> None:
    grant = unverified_grant(await token(house, house.delivery(await house.delegated(project, "t-1"))))
    assert grant.expires_at <= datetime.now(UTC) + timedelta(seconds=60)
    late = mint(house.keyring, grant.model_copy(update={"expires_at": datetime.now(UTC) - timedelta(seconds=1)}))
    await house.refusal("manager", paid(house, late), "expired", step="a", writes=reservation())


async def test_after_the_end_of_a_task_only_begun_calls_are_settled(house: House, project: str) -> None:
    held = await token(house, house.delivery(await house.delegated(project, "t-2")))
    await house.apply("manager", paid(house, held), step="reserve", last=False, writes=reservation("t-2"))
    ended = Write(store="tasks", id="t-2", body=task_body("t-2", "cancelled"), expect=1)
    await house.apply("manager", house.delivery(await house.reported(project, "t-2")), writes=(ended,))
    settled = Write(store="model_calls", id="c-1", body={"task_id": "t-2", "state": "settled"}, expect=1)
    await house.apply("manager", paid(house, held), step="settle", last=False, writes=(settled,))
    again = await house.commit("manager", paid(house, held), step="b", last=False, writes=reservation("t-2", "c-2"))
    assert again.status == "stale"
    both = (Write(store="model_calls", id="c-1", body={"task_id": "t-2"}, expect=2), *reservation("t-2", "c-3"))
    assert (await house.commit("manager", paid(house, held), step="c", last=False, writes=both)).status == "stale"


async def test_only_a_worker_of_a_task_with_the_right_gets_a_token(house: House, project: str) -> None:
    delegated = await house.delegated(project, "t-1")
    assert await code(house, "manager", house.delivery(delegated)) == "audience"
    of_manager = await request_token(house, "manager", house.delivery(await house.routed(project, "t-2")))
    assert of_manager.token is not None
    assert await code(house, "router", house.standing(project)) == "gateway"
    assert await code(house, "developer", house.standing(project)) == "grant"
    assert await code(house, "developer", house.delivery(delegated, lives_s=-1)) == "expired"


async def test_no_token_is_given_after_a_read_above_the_clearance_of_the_providers(house: House, project: str) -> None:
    await confidential(house, project, "s-1")
    origin = house.delivery(await house.delegated(project, "t-1"))
    early = await token(house, origin)
    assert (await house.answer("developer", origin, Get(store="sessions", id="s-1"))).items
    assert await code(house, "developer", origin, reads=1) == "label"
    await house.refusal("manager", paid(house, early), "label", step="a", last=False, writes=reservation())


async def test_no_token_is_given_when_the_read_set_is_lost(house: House, project: str) -> None:
    origin = house.delivery(await house.delegated(project, "t-1"))
    await house.answer("developer", origin, Get(store="sessions", id="s-1"))
    house.restart()
    assert await code(house, "developer", origin, reads=1) == "transient"


async def test_a_token_for_the_web_counts_as_a_read_and_one_for_models_does_not(house: House, project: str) -> None:
    origin = house.delivery(await house.delegated(project, "t-1"))
    await token(house, origin)
    await token(house, origin, purpose="web")
    write = Write(store="actions", id="a-1", body={"task_id": "t-1", "agent": "developer", "reasoning": "as found"})
    forgot = await house.commit("developer", origin, reads=0, step="a", last=False, writes=(write,))
    assert forgot.refusal is not None
    assert forgot.refusal.kind == "transient"
    await house.apply("developer", origin, reads=1, step="b", last=False, writes=(write,))


async def test_the_read_set_of_a_model_call_equals_that_of_its_prompt(house: House, project: str) -> None:
    await house.apply("manager", house.delivery(await house.routed(project, "t-0")),
                     writes=(Write(store="sessions", id="s-1", body={"summary": "as ever"}),))  # fmt: skip
    origin = house.delivery(await house.delegated(project, "t-1"))
    await house.answer("developer", origin, Get(store="sessions", id="s-1"))
    held = await token(house, origin, reads=1)
    await house.apply("manager", paid(house, held), step="reserve", last=False, writes=reservation())
    async with house.superuser() as connection:
        reads = await connection.fetchval(
            "SELECT reads FROM read_sets JOIN records USING (project, commit_id)"
            " WHERE project = $1 AND store = 'model_calls' AND id = 'c-1'",
            project,
        )
    assert [each[:3] for each in json.loads(reads)] == [["sessions", "s-1", 1]]


async def test_a_job_of_memory_has_its_own_budget(house: House, project: str) -> None:
    held = Tokens(policy(), house.keyring).minted_of_job(project, "j-1", 1)
    writes = (Write(store="model_calls", id="c-1", body={}), Write(store="spend", id="job:j-1", body={}))
    house.restart()
    await house.apply("manager", paid(house, held), step="reserve", last=False, writes=writes)
    assert unverified_grant(held).rights == diode.gateway_of_job(policy(), project, "j-1", 1, datetime.now(UTC)).rights

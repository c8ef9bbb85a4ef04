"""Requests to memory of a call, and calls that rest on what was read before something changed."""

import asyncio
from typing import Any

import pytest
from agents.gateway_calls import begun, generated
from agents.gateway_world import PRICED, UNPRICED, Door, World, delegated, developer
from agents.limited_calls import limit
from memory_service.house import House

from counterpoint.client import Gateway, Memory
from counterpoint.manager.gateway.provider_limits import ProviderLimits
from counterpoint.memory.provenance.influence import Influence
from counterpoint.proto.errors import Denied, Transient
from counterpoint.proto.ids import derived_id

pytestmark = pytest.mark.xdist_group("litellm")  # its import takes seconds
QUESTION = [{"role": "user", "content": "Why did it fail?"}]
OUTSIDE = ProviderLimits(models=(PRICED, UNPRICED), calls=1)


@pytest.fixture
def requests(door: Door) -> list[str]:
    """The operations that the gateway asks of memory: `query`, `commit`."""
    asked = list[str]()

    async def note(subject: str, _: bytes) -> None:
        _, caller, operation, *_ = subject.split(".")
        if caller == "manager":
            asked.append(operation)

    door.before = note
    return asked


async def change(house: House, project: str, store: str, record_id: str, setting: str) -> None:
    """Change a record past all rules."""
    async with house.superuser() as connection:
        where = "WHERE project = $1 AND store = $2 AND id = $3"
        await connection.execute(f"UPDATE records SET {setting} {where}", project, store, record_id)


async def record(house: House, memory: Memory, key: str) -> dict[str, Any]:
    call_id = derived_id(memory.origin.message_id, "call", key, 0)
    return await house.body(memory.project, "model_calls", call_id) or {}


@pytest.mark.parametrize("limited", [False, True])
async def test_a_call_reads_once(
    model_client: Gateway, memory: Memory, door: Door, project: str, requests: list[str], limited: bool
) -> None:
    if limited:
        await limit(door.house, project, usd="1", soft_usd="0.5", period="day")
        await limit(door.house, project, scope="task", tokens=10**6)
    await generated(model_client, memory, "first")
    requests.clear()
    await generated(model_client, memory, "second")
    assert requests == ["query", "commit", "commit"]


async def test_a_call_that_waited_for_others_rests_on_the_limits_of_the_time_it_is_made(
    model_client: Gateway, memory: Memory, outside: World, door: Door, project: str
) -> None:
    other = developer(door, await delegated(door.house, project, "t-2"))
    first = await begun(outside, generated(model_client, other, "first"))
    queried = asyncio.Event()

    async def note(subject: str, _: bytes) -> None:
        if subject == "memory.manager.query":
            queried.set()

    door.after = note
    waiting = asyncio.create_task(generated(model_client, memory, "second"))
    await queried.wait()
    await limit(door.house, project, tokens=1, period="day")
    outside.hold.set()
    await first
    with pytest.raises(Denied, match="the limit of project"):
        await waiting
    assert len(outside.seen) == 1


async def test_a_call_that_ends_while_the_same_is_looked_up_has_one_outcome(
    model_client: Gateway, memory: Memory, outside: World, door: Door
) -> None:
    first = await begun(outside, generated(model_client, memory, "k"))
    assert (await record(door.house, memory, "k"))["state"] == "reserved"

    async def finish_first(subject: str, _: bytes) -> None:
        if subject == "memory.manager.query" and not outside.hold.is_set():
            outside.hold.set()
            await first

    door.after = finish_first
    same = await generated(model_client, memory, "k")
    assert same.usage.replayed
    assert (same.text, len(outside.seen)) == (outside.text, 1)
    assert (await record(door.house, memory, "k"))["state"] == "settled"


async def test_a_kept_call_counts_as_read_when_it_is_settled(
    model_client: Gateway, memory: Memory, outside: World, door: Door, requests: list[str]
) -> None:
    house, project = door.house, memory.project
    call_id = derived_id(memory.origin.message_id, "call", "k", 0)
    made = await begun(outside, generated(model_client, memory, "k"))
    await change(house, project, "model_calls", call_id, "integrity = 0")
    house.restart()
    requests.clear()
    outside.hold.set()
    await made
    assert "query" not in requests
    async with house.superuser() as connection:
        stamps = await connection.fetch(
            "SELECT version, integrity FROM records WHERE project = $1 AND store = ANY ($2)",
            project,
            ["model_calls", "spend"],
        )
    assert [tuple(each) for each in stamps] == [(2, 0)] * 2
    for root in (("model_calls", call_id, 1), ("spend", "t-1", 1)):
        radius = await Influence(house.database).of(project, frozenset({root}), reach="shown", limit=10)
        assert ("model_calls", call_id, 2) in {each.key for each in radius.touched}


async def test_a_call_above_the_label_of_its_token_is_not_settled_by_its_cached_reply(
    model_client: Gateway, memory: Memory, outside: World, door: Door
) -> None:
    call_id = derived_id(memory.origin.message_id, "call", "k", 0)
    made = await begun(outside, generated(model_client, memory, "k"))
    await change(door.house, memory.project, "model_calls", call_id, "label = 2")
    door.house.restart()
    outside.hold.set()
    with pytest.raises(Denied) as denied:
        await made
    assert denied.value.rule == "label"


@pytest.mark.parametrize("also", [True, False], ids=["changed", "unchanged"])
async def test_a_call_is_settled_in_spending_that_another_process_has_changed(
    model_client: Gateway, memory: Memory, outside: World, door: Door, requests: list[str], also: bool
) -> None:
    house, project = door.house, memory.project
    made = await begun(outside, generated(model_client, memory, "k"))
    if also:
        lifted = """version = version + 1, body = body || '{"lifted_tokens": 1000, "spent_tokens": 7, "calls": 3}'"""
        await change(house, project, "spend", "t-1", lifted)
    requests.clear()
    outside.hold.set()
    await made
    assert requests == (["commit", "query", "commit"] if also else ["commit"])
    spent, call = await house.body(project, "spend", "t-1") or {}, await record(house, memory, "k")
    assert (spent["calls"], spent["lifted_tokens"]) == ((4, 1000) if also else (1, 0))
    assert spent["spent_tokens"] == call["input_tokens"] + call["output_tokens"] + (7 if also else 0)
    assert (spent["reserved_tokens"], call["state"]) == (0, "settled")


async def test_litellm_writes_no_log_of_a_call(
    model_client: Gateway, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from litellm.litellm_core_utils.litellm_logging import Logging
    from litellm.litellm_core_utils.logging_worker import GLOBAL_LOGGING_WORKER

    logged = list[str]()

    async def note(*_: Any, **__: Any) -> None:
        logged.append("success")

    monkeypatch.setattr(Logging, "async_success_handler", note)
    await generated(model_client, memory, "first")
    await generated(model_client, memory, "second")
    await GLOBAL_LOGGING_WORKER.flush()
    assert logged == []


async def test_calls_of_different_deadlines_share_a_connection(
    model_client: Gateway, memory: Memory, outside: World
) -> None:
    for number in range(3):
        await generated(model_client, memory, f"k{number}", deadline_s=20 + number)
    assert len(outside.connections) == 1


async def test_a_settlement_without_a_reply_is_not_counted_twice(
    model_client: Gateway, memory: Memory, outside: World, door: Door, requests: list[str]
) -> None:
    house, project = door.house, memory.project
    made = await begun(outside, generated(model_client, memory, "k"))
    lost = list[str]()

    async def lose(subject: str, body: bytes) -> None:
        if b'"step":"settle ' in body and not lost:
            lost.append(subject)
            raise Transient("no reply")

    door.after = lose
    requests.clear()
    outside.hold.set()
    assert (await made).text == outside.text
    assert (lost, requests) == (["memory.manager.commit.0"], ["commit", "query"])
    spent = await house.body(project, "spend", "t-1") or {}
    assert (spent["calls"], spent["reserved_tokens"]) == (1, 0)

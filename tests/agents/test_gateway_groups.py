"""Calls that wait for the same spending are reserved and settled together, each as if it were alone."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from agents.gateway_world import PRICED, UNPRICED, Door, World
from memory_service.house import House

from counterpoint.client import Gateway, Memory
from counterpoint.guard.capabilities import Keyring, SigningKey, mint, unverified_grant
from counterpoint.manager.gateway.calls import GenerateCall
from counterpoint.manager.gateway.gateway import ModelGateway
from counterpoint.manager.gateway.provider_limits import ProviderLimits
from counterpoint.manager.gateway.work_groups import WorkGroups
from counterpoint.proto.errors import Denied, Transient
from counterpoint.proto.ids import derived_id

pytestmark = pytest.mark.xdist_group("litellm")  # its import takes seconds
CALLS = 8
OUTSIDE = ProviderLimits(models=(PRICED, UNPRICED), calls=CALLS)
SECRET = "log in with AKIA" + "Z7QF3MPLKD2WXYTB"


@pytest.fixture
def steps(door: Door) -> Counter[str]:
    """The number of commits of the gateway, by kind. The first reservation waits until every call was read for."""
    counted, read = Counter[str](), asyncio.Event()

    async def count(subject: str, body: bytes) -> None:
        counted["read"] += b'"queries"' in body and b'"model_calls"' in body
        counted["limits"] += b'"queries"' in body and b'"limits"' in body
        if counted["read"] == CALLS:
            read.set()
        if b'"step":"reserve ' in body:
            await read.wait()
        for kind in ("reserve", "settle"):
            counted[kind] += f'"step":"{kind} '.encode() in body

    door.before = count
    return counted


async def ask(model_client: Gateway, memory: Memory, key: str, text: str = "Why?") -> str:
    question = [{"role": "user", "content": text}]
    return (await model_client.generate(memory, question, key=key, deadline_s=60, max_tokens=50)).text


async def record(house: House, memory: Memory, key: str) -> dict[str, Any]:
    call_id = derived_id(memory.origin.message_id, "call", key, 0)
    return await house.body(memory.project, "model_calls", call_id) or {}


async def test_parallel_calls_share_commits_and_have_records_of_their_own(
    model_client: Gateway, memory: Memory, outside: World, house: House, project: str, steps: Counter[str]
) -> None:
    outside.hold.clear()
    outside.expected = CALLS
    calls = [asyncio.create_task(ask(model_client, memory, f"k{n}")) for n in range(CALLS)]
    await outside.arrived.wait()
    assert steps["reserve"] < CALLS
    outside.hold.set()
    assert await asyncio.gather(*calls) == [outside.text] * CALLS
    assert 0 < steps["settle"] <= CALLS
    assert steps["limits"] < CALLS, "a group reads once what its reservations rest on"
    kept = [await record(house, memory, f"k{n}") for n in range(CALLS)]
    assert [each["state"] for each in kept] == ["settled"] * CALLS
    spent = await house.body(project, "spend", "t-1") or {}
    assert (spent["calls"], spent["reserved_tokens"]) == (CALLS, 0)
    assert spent["spent_tokens"] == sum(each["input_tokens"] + each["output_tokens"] for each in kept)


async def test_an_answer_that_is_not_kept_costs_the_others_nothing(
    model_client: Gateway, memory: Memory, outside: World, house: House
) -> None:
    outside.script = lambda messages: SECRET if messages[-1]["content"] == "Which key?" else outside.text
    outside.hold.clear()
    outside.expected = 4
    questions = ["Why?", "Why?", "Which key?", "Why?"]
    calls = [asyncio.create_task(ask(model_client, memory, f"k{n}", text)) for n, text in enumerate(questions)]
    await outside.arrived.wait()
    outside.hold.set()
    assert (await asyncio.gather(*calls))[2] == SECRET
    kept = [await record(house, memory, f"k{n}") for n in range(4)]
    assert [each["state"] for each in kept] == ["settled"] * 4
    assert ["response" in each for each in kept] == [True, True, False, True]


async def test_a_forged_token_gets_no_share_in_a_commit(
    gateway_server: tuple[str, ModelGateway], memory: Memory, outside: World, house: House
) -> None:
    token = await memory.gateway_token("model")
    forged = mint(Keyring((SigningKey.generate(1),)), unverified_grant(token))
    call = GenerateCall(PRICED, (("user", "Why?"),), 50)
    outcomes = await asyncio.gather(
        *(gateway_server[1].call(forged if n % 2 else token, f"k{n}", call, 60) for n in range(6)),
        return_exceptions=True,
    )
    assert [isinstance(each, Denied) for each in outcomes] == [False, True] * 3
    assert [bool(await record(house, memory, f"k{n}")) for n in range(6)] == [True, False] * 3
    assert len(outside.seen) == 3


class Work:
    """Work that waits for `go`; it fails with `error` if a group has the value 0."""

    def __init__(self, error: Exception | None = None) -> None:
        self.began, self.go = asyncio.Event(), asyncio.Event()
        self.groups: list[list[int]] = []
        self.error = error

    async def __call__(self, values: Sequence[int]) -> list[int | Exception]:
        self.groups.append([*values])
        self.began.set()
        await self.go.wait()
        if self.error is not None and 0 in values:
            raise self.error
        return [value if value < 9 else Transient("nine") for value in values]


async def processed(work: Work, values: Sequence[int], **limits: Any) -> list[Any]:
    groups = WorkGroups[int, int](work, **{"limit": 10, **limits})
    first = asyncio.create_task(groups.process("key", 1))
    await work.began.wait()
    others = [asyncio.create_task(groups.process("key", value)) for value in values]
    await asyncio.sleep(0)
    work.go.set()
    return await asyncio.gather(first, *others, return_exceptions=True)


async def test_while_a_group_is_processed_the_next_gathers() -> None:
    work = Work()
    assert await processed(work, [2, 3, 4]) == [1, 2, 3, 4]
    assert work.groups == [[1], [2, 3, 4]]
    work = Work()
    await processed(work, [2, 3, 4], limit=2)
    assert work.groups == [[1], [2, 3], [4]]
    work = Work()
    await processed(work, [2, 3, 8, 4], weight=lambda value: value, max_weight=6)
    assert work.groups == [[1], [2, 3], [8], [4]]


async def test_an_error_is_that_of_its_value() -> None:
    outcomes = await processed(Work(), [2, 9, 3])
    assert [*outcomes[:2], outcomes[3]] == [1, 2, 3]
    assert isinstance(outcomes[2], Transient)
    refused = Denied("store", "a right")
    work = Work(refused)
    assert await processed(work, [2, 0, 3]) == [1, 2, refused, 3]
    assert work.groups == [[1], [2, 0, 3], [2], [0], [3]]
    away = Transient("away")
    assert await processed(Work(away), [2, 0]) == [1, away, away]

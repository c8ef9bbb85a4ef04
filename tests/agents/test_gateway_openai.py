"""The gateway as the OpenAI client calls it: in parts, with tools and with a schema, paid by the token of a task."""

import json
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest
from agents.gateway_calls import call
from agents.gateway_world import PRICED, UNPRICED, Door, World, delegated, developer, gateway
from memory_service.house import House
from openai import APIError, AsyncOpenAI, BadRequestError, PermissionDeniedError, UnprocessableEntityError

from counterpoint.client import Memory
from counterpoint.manager.gateway.calls import GenerateCall, call_digest, max_call_tokens
from counterpoint.manager.gateway.provider_limits import ProviderLimits

pytestmark = pytest.mark.xdist_group("litellm")  # its import takes seconds
QUESTION: list[Any] = [{"role": "user", "content": "Why did it fail?"}]
OUTSIDE = ProviderLimits(models=(PRICED, UNPRICED))
TOOL: Any = {
    "type": "function",
    "function": {"name": "read_log", "parameters": {"type": "object", "properties": {"run": {"type": "string"}}}},
}
CALLED = {"id": "call-1", "type": "function", "function": {"name": "read_log", "arguments": '{"run": "r-17"}'}}


@pytest.fixture
async def url(door: Door, outside: World) -> AsyncIterator[str]:
    async with gateway(door, OUTSIDE) as (url, _):
        yield url


@pytest.fixture
async def openai(url: str, memory: Memory) -> AsyncIterator[AsyncOpenAI]:
    token = await memory.gateway_token("model")
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key=token, max_retries=0) as client:
        yield client


def keyed(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key}


async def streamed(client: AsyncOpenAI, key: str = "k", **more: Any) -> list[Any]:
    """The chunks of a completion in parts."""
    stream = await client.chat.completions.create(
        model=PRICED, messages=QUESTION, stream=True, extra_headers=keyed(key), **more
    )
    return [chunk async for chunk in stream]


def text_of(chunks: list[Any]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


class TestStreams:
    async def test_a_part_arrives_before_the_provider_has_sent_the_next(
        self, openai: AsyncOpenAI, outside: World, house: House, memory: Memory
    ) -> None:
        outside.between.clear()
        stream = await openai.chat.completions.create(
            model=PRICED, messages=QUESTION, stream=True, extra_headers=keyed("k")
        )
        first = await anext(aiter(stream))
        assert (first.choices[0].delta.role, first.choices[0].delta.content) == ("assistant", "It")
        assert (await call(house, memory, "k"))["state"] == "reserved"
        outside.between.set()
        assert "It" + text_of([chunk async for chunk in stream]) == outside.text.replace(" ", "")
        assert (await call(house, memory, "k"))["state"] == "settled"

    async def test_a_stream_costs_the_tokens_that_the_provider_counts(
        self, openai: AsyncOpenAI, outside: World, house: House, memory: Memory
    ) -> None:
        chunks = await streamed(openai, stream_options={"include_usage": True})
        cost = Decimal("0.00000015") * 20 + Decimal("0.0000006") * 5
        assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == (20, 5)
        assert chunks[-2].choices[0].finish_reason == "stop"
        assert Decimal(chunks[-2].counterpoint["cost_usd"]) == cost
        kept = await call(house, memory, "k")
        assert Decimal(kept["cost_usd"]) == cost
        assert kept["response"] == {"text": outside.text.replace(" ", ""), "finish": "stop"}

    async def test_a_stream_without_a_count_costs_the_estimate(
        self, openai: AsyncOpenAI, outside: World, house: House, memory: Memory
    ) -> None:
        outside.counts_tokens = False
        await streamed(openai, max_tokens=50)
        kept = await call(house, memory, "k")
        assert (kept["state"], kept["output_tokens"]) == ("settled", 50)

    async def test_a_repeated_key_streams_the_stored_answer_and_is_not_paid_twice(
        self, openai: AsyncOpenAI, outside: World
    ) -> None:
        chunks = await streamed(openai)
        outside.text = "another"
        again = await streamed(openai)
        assert text_of(again) == text_of(chunks)
        assert again[-1].counterpoint["replayed"]
        whole = await openai.chat.completions.create(model=PRICED, messages=QUESTION, extra_headers=keyed("k"))
        assert whole.choices[0].message.content == text_of(chunks)
        assert len(outside.seen) == 1

    async def test_a_budget_that_ends_in_the_middle_of_a_stream_ends_the_next_call(
        self, url: str, door: Door, outside: World, project: str
    ) -> None:
        working = developer(door, await delegated(door.house, project, "t-1", tokens=300))
        outside.output_tokens = 5_000
        async with AsyncOpenAI(
            base_url=f"{url}/v1", api_key=await working.gateway_token("model"), max_retries=0
        ) as client:
            assert text_of(await streamed(client, max_tokens=50)) == outside.text.replace(" ", "")
            with pytest.raises(APIError, match="budget"):
                await streamed(client, "l", max_tokens=50)
        spent = await door.house.body(project, "spend", "t-1") or {}
        assert (spent["spent_tokens"], spent["reserved_tokens"], spent["calls"]) == (5_020, 0, 1)
        assert len(outside.seen) == 1

    @pytest.mark.parametrize("cut", [0, 2])
    async def test_a_stream_that_is_cut_off_is_of_unknown_outcome_and_counted(
        self, openai: AsyncOpenAI, outside: World, house: House, memory: Memory, cut: int
    ) -> None:
        outside.cut = cut
        with pytest.raises(APIError, match="broke off"):
            await streamed(openai)
        kept = await call(house, memory, "k")
        assert (kept["state"], kept["cost_usd"]) == ("unknown", kept["estimate_usd"])
        assert len(outside.seen) == 1

    async def test_a_client_that_leaves_has_its_answer_stored(
        self, openai: AsyncOpenAI, outside: World, house: House, memory: Memory
    ) -> None:
        outside.between.clear()
        stream = await openai.chat.completions.create(
            model=PRICED, messages=QUESTION, stream=True, extra_headers=keyed("k")
        )
        await anext(aiter(stream))
        await stream.close()
        outside.between.set()
        assert text_of(await streamed(openai)) == outside.text.replace(" ", "")
        assert len(outside.seen) == 1

    async def test_an_error_before_the_first_part_is_a_status(
        self, openai: AsyncOpenAI, door: Door, project: str, url: str
    ) -> None:
        memory = developer(door, await delegated(door.house, project, "t-2", tokens=10))
        client = openai.with_options(api_key=await memory.gateway_token("model"))
        with pytest.raises(PermissionDeniedError, match="budget"):
            await streamed(client)


class TestTools:
    async def test_a_tool_is_called_and_its_result_returned(
        self, openai: AsyncOpenAI, outside: World, house: House, memory: Memory
    ) -> None:
        outside.tool_calls = [CALLED]
        asked = await openai.chat.completions.create(
            model=PRICED, messages=QUESTION, tools=[TOOL], tool_choice="auto", extra_headers=keyed("k")
        )
        (tool_call,) = asked.choices[0].message.tool_calls or ()
        assert (asked.choices[0].finish_reason, tool_call.id) == ("tool_calls", "call-1")
        assert tool_call.type == "function"
        assert (tool_call.function.name, json.loads(tool_call.function.arguments)) == ("read_log", {"run": "r-17"})
        assert outside.seen[0]["tools"] == [TOOL]
        assert outside.seen[0]["tool_choice"] == "auto"
        assert (await call(house, memory, "k"))["response"]["tool_calls"] == [CALLED]
        outside.tool_calls = []
        result: Any = {"role": "tool", "tool_call_id": tool_call.id, "content": "No space left on device"}
        said = await openai.chat.completions.create(
            model=PRICED, messages=[*QUESTION, asked.choices[0].message.to_dict(), result], tools=[TOOL]
        )
        assert said.choices[0].message.content == outside.text
        assert outside.seen[1]["messages"][1]["tool_calls"] == [CALLED]
        assert outside.seen[1]["messages"][2] == result

    async def test_tool_calls_arrive_in_parts(
        self, openai: AsyncOpenAI, outside: World, house: House, memory: Memory
    ) -> None:
        outside.tool_calls = [CALLED, CALLED | {"id": "call-2"}]
        chunks = await streamed(openai, tools=[TOOL])
        parts = [part for chunk in chunks for part in (chunk.choices[0].delta.tool_calls or ())]
        for index in (0, 1):
            arguments = "".join(part.function.arguments for part in parts if part.index == index)
            assert arguments == CALLED["function"]["arguments"]  # type: ignore[index]
        assert chunks[-1].choices[0].finish_reason == "tool_calls"
        assert (await call(house, memory, "k"))["response"]["tool_calls"] == outside.tool_calls
        (again, last) = await streamed(openai, tools=[TOOL])
        assert [part.id for part in again.choices[0].delta.tool_calls] == ["call-1", "call-2"]
        assert last.choices[0].finish_reason == "tool_calls"

    async def test_a_schema_reaches_the_provider(self, openai: AsyncOpenAI, outside: World) -> None:
        schema: Any = {"name": "cause", "schema": {"type": "object", "properties": {"cause": {"type": "string"}}}}
        form: Any = {"type": "json_schema", "json_schema": schema}
        await openai.chat.completions.create(model=PRICED, messages=QUESTION, response_format=form)
        assert outside.seen[0]["response_format"] == form

    @pytest.mark.parametrize(
        ("more", "field"),
        [
            ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0"),
            ({"messages": [{"role": "assistant", "content": None}]}, "messages.0"),
            ({"tools": [{"type": "function", "function": {}}]}, "tools.0.function.name"),
            ({"tools": [TOOL] * 129}, "tools"),
            ({"response_format": {"type": "json_schema"}}, "response_format"),
        ],
    )
    async def test_an_invalid_request_is_refused_with_its_field(
        self, openai: AsyncOpenAI, outside: World, more: Any, field: str
    ) -> None:
        with pytest.raises((UnprocessableEntityError, BadRequestError)) as refused:
            await openai.chat.completions.create(**{"model": PRICED, "messages": QUESTION, **more})
        assert refused.value.body["problems"][0]["field"] == field  # type: ignore[index]
        assert not outside.seen

    def test_tools_are_part_of_the_call_and_of_its_estimate(self) -> None:
        plain = GenerateCall(PRICED, (("user", "Why?"),), 100)
        # The hash of a call that was stored before there were tools.
        assert call_digest(plain) == "a090b31607dd29fbb545a05efe97708b250af5162dc19c4d398392a7cda78183"
        with_tools = GenerateCall(PRICED, (("user", "Why?"),), 100, tools=(TOOL,))
        assert call_digest(with_tools) != call_digest(plain)
        # A provider adds instructions of some hundred tokens for the use of tools.
        assert max_call_tokens(with_tools)[0] >= max_call_tokens(plain)[0] + len(json.dumps(TOOL)) + 1000

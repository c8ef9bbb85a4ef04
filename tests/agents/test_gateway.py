"""The gateway on memory's real door, through the real LiteLLM to a provider over HTTP."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from agents.gateway_calls import OUTSIDE, QUESTION, begun, call, end_task, generated, spend
from agents.gateway_world import (
    EMBEDDING,
    PRICED,
    UNPRICED,
    Door,
    World,
    client,
    delegated,
    developer,
    gateway,
    posted,
    unit,
)
from memory_service.house import House, task_body
from prometheus_client import REGISTRY

from counterpoint.client import Gateway, Memory
from counterpoint.manager.gateway.gateway import ModelGateway
from counterpoint.manager.gateway.models import ModelProvider
from counterpoint.manager.gateway.provider_limits import ProviderLimits
from counterpoint.manager.session_summary import on_summarize
from counterpoint.proto.errors import Conflict, Denied, Permanent
from counterpoint.proto.memory import Outgoing, Write
from counterpoint.proto.sessions import SessionRecord, SummarizeSession, summary_id

pytestmark = pytest.mark.xdist_group("litellm")  # its import takes seconds


class TestCalls:
    async def test_an_answer_is_settled_at_the_price_of_its_model(
        self, model_client: Gateway, memory: Memory, house: House, project: str, outside: World
    ) -> None:
        said = await generated(model_client, memory, "first", max_tokens=100)
        assert (said.text, said.finish) == ("It was the disk.", "stop")
        cost = Decimal("0.00000015") * 20 + Decimal("0.0000006") * 5
        assert said.usage.cost_usd == cost
        assert outside.seen[0]["max_tokens"] == 100
        kept = await spend(house, project)
        assert Decimal(kept["spent_usd"]) == cost
        assert (kept["spent_tokens"], kept["calls"], kept["reserved_tokens"]) == (25, 1, 0)
        assert (await call(house, memory, "first"))["state"] == "settled"
        assert REGISTRY.get_sample_value(
            "counterpoint_llm_cost_usd_total", {"project": project, "model": PRICED}
        ) == pytest.approx(float(cost))

    async def test_an_unknown_price_is_recorded_as_unknown(
        self, gateway_server: tuple[str, ModelGateway], memory: Memory, house: House, project: str
    ) -> None:
        asking = client(gateway_server[0], UNPRICED)
        said = await generated(asking, memory, "first")
        await asking.close()
        assert said.usage.cost_usd is None
        kept = await call(house, memory, "first")
        assert (kept["estimate_usd"], kept["cost_usd"]) == ("unknown", "unknown")
        total = await spend(house, project)
        assert (total["spent_usd"], total["unpriced"], total["spent_tokens"]) == ("0", 1, 25)

    @pytest.mark.parametrize(
        ("model", "usd"),
        [
            (PRICED, Decimal("0.00021")),
            (EMBEDDING, Decimal("0.00002")),
            ("ollama/llama3", Decimal(0)),
            ("bedrock/us.twelvelabs.marengo-embed-2-7-v1:0", "unknown"),
            ("hosted_vllm/gpt-4o-mini", "unknown"),
            (UNPRICED, "unknown"),
            ("no provider at all", "unknown"),
        ],
    )
    async def test_only_a_listed_price_counts(self, model: str, usd: Any) -> None:
        output = 0 if model in (EMBEDDING, "bedrock/us.twelvelabs.marengo-embed-2-7-v1:0") else 100
        assert (await ModelProvider(1, 60).estimate(model, 1000, output)).usd == usd

    async def test_vectors_come_back_in_their_order(
        self, model_client: Gateway, memory: Memory, house: House, project: str, outside: World
    ) -> None:
        one, two = (await model_client.embed(memory, ["a disk", "b net"], key="v", deadline_s=20)).vectors
        (again,) = (await model_client.embed(memory, ["a disk"], key="w", deadline_s=20)).vectors
        assert one == again != two
        assert len(one) == 384 * 4
        assert unit(one) > 1.5
        assert (await call(house, memory, "v")).get("response") is None

    async def test_tokens_that_a_provider_does_not_count_are_settled_at_the_estimate(
        self, model_client: Gateway, memory: Memory, house: House, project: str, outside: World
    ) -> None:
        outside.counts_tokens = False
        said = await model_client.embed(memory, ["a disk"], key="v", deadline_s=20)
        kept = await call(house, memory, "v")
        assert said.usage.input_tokens == kept["input_tokens"] == kept["estimate_input_tokens"] > 0
        assert said.usage.cost_usd == Decimal(kept["estimate_usd"]) > 0

    async def test_a_key_brings_the_outcome_that_was_kept(
        self, model_client: Gateway, memory: Memory, outside: World, house: House, project: str
    ) -> None:
        first = await generated(model_client, memory, "k")
        outside.text = "It was the net."
        second = await generated(model_client, memory, "k")
        assert (second.text, second.usage.replayed) == (first.text, True)
        assert second.usage.cost_usd == first.usage.cost_usd
        assert len(outside.seen) == 1
        assert (await spend(house, project))["calls"] == 1

    async def test_a_key_stands_for_one_request(self, model_client: Gateway, memory: Memory, outside: World) -> None:
        await generated(model_client, memory, "k")
        with pytest.raises(Permanent, match="key_reused"):
            await generated(model_client, memory, "k", max_tokens=7)
        assert len(outside.seen) == 1

    async def test_the_same_call_at_the_same_time_is_made_once(
        self, model_client: Gateway, memory: Memory, outside: World
    ) -> None:
        outside.hold.clear()
        both = [asyncio.create_task(generated(model_client, memory, "k")) for _ in range(2)]
        await outside.arrived.wait()
        outside.hold.set()
        one, two = await asyncio.gather(*both)
        assert one.text == two.text
        assert len(outside.seen) == 1

    async def test_a_call_is_reserved_while_another_of_the_same_message_is_settled(
        self, model_client: Gateway, memory: Memory, outside: World, door: Door
    ) -> None:
        outside.hold.clear()
        first = asyncio.create_task(generated(model_client, memory, "k"))
        await outside.arrived.wait()
        reading_done, settled = asyncio.Event(), asyncio.Event()

        async def wait_before_reserving(subject: str, body: bytes) -> None:
            if b'"step":"reserve ' in body:
                reading_done.set()
                await settled.wait()

        door.before = wait_before_reserving
        second = asyncio.create_task(generated(model_client, memory, "l"))
        await reading_done.wait()
        outside.hold.set()
        await first
        settled.set()
        assert (await second).text == outside.text

    async def test_an_answer_with_a_secret_is_not_kept(
        self, model_client: Gateway, memory: Memory, outside: World, house: House, project: str
    ) -> None:
        outside.text = "log in with AKIA" + "Z7QF3MPLKD2WXYTB"
        assert (await generated(model_client, memory, "k")).text == outside.text
        kept = await call(house, memory, "k")
        assert kept["state"] == "settled"
        assert "response" not in kept
        with pytest.raises(Permanent, match="not_kept"):
            await generated(model_client, memory, "k")
        assert len(outside.seen) == 1


class TestBudgets:
    async def test_parallel_calls_never_exceed_it(
        self, model_client: Gateway, gateway_server: tuple[str, ModelGateway], door: Door, outside: World, project: str
    ) -> None:
        limit = Decimal("0.0004")
        outside.output_tokens = 100
        working = developer(door, await delegated(door.house, project, "t-1", usd=str(limit)))
        async with gateway(door, OUTSIDE) as (other, _):
            beside = client(other)
            made = await asyncio.gather(
                *(
                    generated(model_client if n % 2 else beside, working, f"k{n}", max_tokens=100, deadline_s=60)
                    for n in range(24)
                ),
                return_exceptions=True,
            )
            await beside.close()
        done = [each for each in made if not isinstance(each, BaseException)]
        refused = [each for each in made if isinstance(each, Denied)]
        assert len(done) + len(refused) == len(made), made
        assert {each.rule for each in refused} == {"budget"}
        assert 3 < len(done) < 24
        total = await spend(door.house, project)
        assert Decimal(total["spent_usd"]) == sum(each.usage.cost_usd for each in done) <= limit
        assert Decimal(total["reserved_usd"]) == 0
        assert len(outside.seen) == len(done)

    async def test_tokens_have_a_limit_too(self, model_client: Gateway, door: Door, project: str) -> None:
        working = developer(door, await delegated(door.house, project, "t-1", tokens=300))
        await generated(model_client, working, "k", max_tokens=150)
        with pytest.raises(Denied, match="budget"):
            await generated(model_client, working, "l", max_tokens=250)

    async def test_a_price_that_rises_during_a_call_is_paid_once_and_ends_the_budget(
        self, model_client: Gateway, door: Door, outside: World, project: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        working = developer(door, await delegated(door.house, project, "t-1", usd="0.001"))
        under_way = await begun(outside, generated(model_client, working, "k", max_tokens=100))
        price = ModelProvider._price
        monkeypatch.setattr(ModelProvider, "_price", lambda *given: price(*given) * 1000)
        outside.hold.set()
        cost = 1000 * (Decimal("0.00000015") * 20 + Decimal("0.0000006") * 5)
        assert (await under_way).usage.cost_usd == cost
        assert (await generated(model_client, working, "k", max_tokens=100)).usage.cost_usd == cost
        with pytest.raises(Denied, match="budget"):
            await generated(model_client, working, "l", max_tokens=100)
        total = await spend(door.house, project)
        assert (Decimal(total["spent_usd"]), Decimal(total["reserved_usd"]), total["calls"]) == (cost, 0, 1)
        assert len(outside.seen) == 1

    async def test_a_budget_in_dollars_does_not_pay_for_a_model_without_a_price(
        self, gateway_server: tuple[str, ModelGateway], door: Door, outside: World, project: str
    ) -> None:
        working = developer(door, await delegated(door.house, project, "t-1", usd="10"))
        asking = client(gateway_server[0], UNPRICED)
        with pytest.raises(Denied, match="price is known"):
            await generated(asking, working, "k")
        await asking.close()
        assert not outside.seen


class TestRequests:
    async def test_only_configured_models_are_called(
        self, gateway_server: tuple[str, ModelGateway], memory: Memory, outside: World
    ) -> None:
        body = {"model": "openai/gpt-4o", "messages": QUESTION}
        answer = await posted(gateway_server[0], "/v1/chat/completions", await memory.gateway_token("model"), body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "model")
        assert not outside.seen

    async def test_any_client_of_such_an_api_may_ask(
        self, gateway_server: tuple[str, ModelGateway], memory: Memory
    ) -> None:
        token = await memory.gateway_token("model")
        answer = await posted(gateway_server[0], "/v1/chat/completions", token, {"messages": QUESTION})
        assert answer.json()["choices"][0]["message"] == {"role": "assistant", "content": "It was the disk."}
        answer = await posted(gateway_server[0], "/v1/embeddings", token, {"input": "a"})
        assert len(answer.json()["data"][0]["embedding"]) == 384

    @pytest.mark.parametrize(
        ("body", "field"),
        [({"messages": []}, "messages"), ({"messages": QUESTION, "stream": "often"}, "stream"), ([], "")],
    )
    async def test_an_invalid_request_is_refused_with_its_field(
        self, gateway_server: tuple[str, ModelGateway], memory: Memory, body: Any, field: str
    ) -> None:
        answer = await posted(gateway_server[0], "/v1/chat/completions", await memory.gateway_token("model"), body)
        assert answer.status_code == 422
        assert answer.json()["error"]["problems"][0]["field"] == field

    async def test_a_missing_model_or_search_is_refused_without_a_call(self, memory: Memory, door: Door) -> None:
        for nothing in (Gateway(None, model=PRICED, searches_web=True), Gateway("http://127.0.0.1:9")):
            assert (nothing.model, nothing.searches_web) == (None, False)
            with pytest.raises(Permanent, match="no_model"):
                await generated(nothing, memory, "k")
            with pytest.raises(Permanent, match="web_unavailable"):
                await nothing.search_web(memory, "q", key="s", deadline_s=5)
        async with gateway(door, ProviderLimits(search_url="http://127.0.0.1:9")) as (url, _):
            token = await memory.gateway_token("model")
            answer = await posted(url, "/v1/chat/completions", token, {"messages": QUESTION})
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "no_model")


async def test_the_manager_pays_for_the_summary_of_a_session_from_the_budget_of_the_task_that_continues_it(
    door: Door, project: str, outside: World, gateway_server: tuple[str, ModelGateway]
) -> None:
    """Also after the task has ended, by rules then; and once, however often the message is delivered."""
    house, line = door.house, "Ana restarts the resolver."
    at = {"submitted_by": "ana", "submitted_at": "2026-11-20T12:00:00Z", "project": project}
    first = {"description": "Who restarts the resolver?", "result": "Ana restarts the resolver.", **at}
    routed = await house.routed(project, "t-1")
    ended = Write(store="tasks", id="t-1", body=task_body("t-1", "completed", **first))
    await house.apply("manager", house.delivery(routed), writes=(ended,))
    session = SessionRecord.model_validate({
        "session_id": "s", "project": project, "task_ids": ("t-1", "t-2"), "summary": "question: Who?",
        "opened_at": at["submitted_at"], "continued_at": at["submitted_at"],
    })  # fmt: skip
    second = task_body("t-2", description="And the database?", session_id="s", budget={"usd": "1"}, **at)
    message = SummarizeSession(task_id="t-2", session_id="s")
    done = await house.apply(
        "manager", house.delivery(await house.routed(project, "t-2")),
        writes=(
            Write(store="tasks", id="t-2", body=second),
            Write(store="sessions", id="s", body=session.model_dump(mode="json")),
        ),
        messages=(Outgoing(type=SummarizeSession.TYPE, data=message.model_dump(mode="json")),),
    )  # fmt: skip
    outside.text = f"{line}\nCall +49 30 1234."
    asked = client(gateway_server[0])

    async def summarized() -> dict[str, Any]:
        manager = Memory(door, "manager", house.delivery(done.message_ids[0], lives_s=3600), datetime.now(UTC))
        with suppress(Conflict):
            await manager.step(await on_summarize(message, manager, asked))
        return await house.body(project, "sessions", summary_id("s")) or {}

    found = await summarized()
    assert (found["summary"], found["by"], found["task_ids"]) == (line, PRICED, ["t-1"])
    paid = await spend(house, project, "t-2")
    assert Decimal(paid["spent_usd"]) > 0
    assert (paid["limit_usd"], await spend(house, project)) == ("1", {})
    await summarized()
    assert len(outside.seen) == 1
    await end_task(house, project)
    await summarized()
    assert len(outside.seen) == 1
    await asked.close()

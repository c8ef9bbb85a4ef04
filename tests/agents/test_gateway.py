"""The gateway on memory's real door, through the real LiteLLM to a provider over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

import pytest
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
from flows.found_secrets import Needles, in_database
from flows.planted_secrets import Mint
from memory_service.house import PERSON, House, task_body
from memory_service.record_bodies import rest
from prometheus_client import REGISTRY
from starlette.responses import JSONResponse, Response

from counterpoint.client import Gateway, Memory
from counterpoint.guard.capabilities import Keyring, SigningKey, mint, revocation_ids, unverified_grant
from counterpoint.guard.policy import policy
from counterpoint.manager.gateway.api import BODY_LIMIT_BYTES, UNCHECKED_BYTES
from counterpoint.manager.gateway.calls import GenerateCall
from counterpoint.manager.gateway.gateway import ModelGateway
from counterpoint.manager.gateway.models import ModelProvider
from counterpoint.manager.gateway.provider_limits import ProviderLimits
from counterpoint.manager.session_summary import on_summarize
from counterpoint.proto.errors import Conflict, Denied, Permanent, Transient
from counterpoint.proto.ids import derived_id, new_id
from counterpoint.proto.memory import Commit, Outgoing, Write
from counterpoint.proto.sessions import SessionRecord, SummarizeSession, summary_id

pytestmark = pytest.mark.xdist_group("litellm")  # its import takes seconds
DEAR = "openai/gpt-4o"
QUESTION = [{"role": "user", "content": "Why did it fail?"}]
OUTSIDE = ProviderLimits(models=(PRICED, UNPRICED), embedding_models=(EMBEDDING,))


@pytest.fixture
async def listening(door: Door, outside: World) -> AsyncIterator[tuple[str, ModelGateway]]:
    """A gateway to the world outside."""
    async with gateway(door, replace(OUTSIDE, search_url=outside.url)) as made:
        yield made


@pytest.fixture
async def asking(listening: tuple[str, ModelGateway]) -> AsyncIterator[Gateway]:
    """The developer's client of it."""
    made = client(listening[0], searches_web=True)
    yield made
    await made.close()


async def spend(house: House, project: str, task: str = "t-1") -> dict[str, Any]:
    """What the task has spent."""
    return await house.body(project, "spend", task) or {}


async def end_task(house: House, project: str) -> None:
    """Cancel the tasks of a project, past all rules."""
    async with house.superuser() as connection:
        await connection.execute(
            "UPDATE records SET version = version + 1, body = jsonb_set(body, '{state}', '\"cancelled\"')"
            " WHERE project = $1 AND store = 'tasks'",
            project,
        )
    house.restart()


async def call(house: House, memory: Memory, key: str, number: int = 0) -> dict[str, Any]:
    """The record of a call."""
    call_id = derived_id(memory.origin.message_id, "call", key, number)
    return await house.body(memory.project, "model_calls", call_id) or {}


def name(model: str) -> str:
    """The name by which the provider knows a model."""
    return model.partition("/")[2]


async def begun(outside: World, made: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    """A call that the provider has received and does not answer yet."""
    outside.hold.clear()
    under_way = asyncio.create_task(made)
    await outside.arrived.wait()
    return under_way


async def generated(asking: Gateway, memory: Memory, key: str, **more: Any) -> Any:
    return await asking.generate(memory, QUESTION, key=key, deadline_s=more.pop("deadline_s", 20), **more)


class TestCalls:
    async def test_what_a_model_says_is_settled_at_its_price(
        self, asking: Gateway, memory: Memory, house: House, project: str, outside: World
    ) -> None:
        said = await generated(asking, memory, "first", max_tokens=100)
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

    async def test_an_unknown_price_is_said_to_be_unknown(
        self, listening: tuple[str, ModelGateway], memory: Memory, house: House, project: str
    ) -> None:
        asking = client(listening[0], UNPRICED)
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
    async def test_only_a_price_that_is_written_down_is_one(self, model: str, usd: Any) -> None:
        output = 0 if model in (EMBEDDING, "bedrock/us.twelvelabs.marengo-embed-2-7-v1:0") else 100
        assert (await ModelProvider(1).estimate(model, 1000, output)).usd == usd

    async def test_vectors_come_back_in_their_order(
        self, asking: Gateway, memory: Memory, house: House, project: str, outside: World
    ) -> None:
        one, two = (await asking.embed(memory, ["a disk", "b net"], key="v", deadline_s=20)).vectors
        (again,) = (await asking.embed(memory, ["a disk"], key="w", deadline_s=20)).vectors
        assert one == again != two
        assert len(one) == 384 * 4
        assert unit(one) > 1.5
        assert (await call(house, memory, "v")).get("response") is None

    async def test_what_a_provider_does_not_count_is_settled_at_the_estimate(
        self, asking: Gateway, memory: Memory, house: House, project: str, outside: World
    ) -> None:
        outside.counts_tokens = False
        said = await asking.embed(memory, ["a disk"], key="v", deadline_s=20)
        kept = await call(house, memory, "v")
        assert said.usage.input_tokens == kept["input_tokens"] == kept["estimate_input_tokens"] > 0
        assert said.usage.cost_usd == Decimal(kept["estimate_usd"]) > 0

    async def test_a_key_brings_the_outcome_that_was_kept(
        self, asking: Gateway, memory: Memory, outside: World, house: House, project: str
    ) -> None:
        first = await generated(asking, memory, "k")
        outside.text = "It was the net."
        second = await generated(asking, memory, "k")
        assert (second.text, second.usage.replayed) == (first.text, True)
        assert second.usage.cost_usd == first.usage.cost_usd
        assert len(outside.seen) == 1
        assert (await spend(house, project))["calls"] == 1

    async def test_a_key_stands_for_one_request(self, asking: Gateway, memory: Memory, outside: World) -> None:
        await generated(asking, memory, "k")
        with pytest.raises(Permanent, match="key_reused"):
            await generated(asking, memory, "k", max_tokens=7)
        assert len(outside.seen) == 1

    async def test_the_same_call_at_the_same_time_is_made_once(
        self, asking: Gateway, memory: Memory, outside: World
    ) -> None:
        outside.hold.clear()
        both = [asyncio.create_task(generated(asking, memory, "k")) for _ in range(2)]
        await outside.arrived.wait()
        outside.hold.set()
        one, two = await asyncio.gather(*both)
        assert one.text == two.text
        assert len(outside.seen) == 1

    async def test_a_call_is_reserved_while_another_of_the_same_message_is_settled(
        self, asking: Gateway, memory: Memory, outside: World, door: Door
    ) -> None:
        outside.hold.clear()
        first = asyncio.create_task(generated(asking, memory, "k"))
        await outside.arrived.wait()
        reading_done, settled = asyncio.Event(), asyncio.Event()

        async def wait_before_reserving(subject: str, body: bytes) -> None:
            if b'"step":"reserve ' in body:
                reading_done.set()
                await settled.wait()

        door.before = wait_before_reserving
        second = asyncio.create_task(generated(asking, memory, "l"))
        await reading_done.wait()
        outside.hold.set()
        await first
        settled.set()
        assert (await second).text == outside.text

    async def test_what_the_write_filter_holds_back_is_not_kept(
        self, asking: Gateway, memory: Memory, outside: World, house: House, project: str
    ) -> None:
        outside.text = "log in with AKIA" + "Z7QF3MPLKD2WXYTB"
        assert (await generated(asking, memory, "k")).text == outside.text
        kept = await call(house, memory, "k")
        assert kept["state"] == "settled"
        assert "response" not in kept
        with pytest.raises(Permanent, match="not_kept"):
            await generated(asking, memory, "k")
        assert len(outside.seen) == 1


class TestProviders:
    async def test_no_secret_of_a_prompt_or_an_answer_is_kept(
        self, asking: Gateway, memory: Memory, outside: World, house: House
    ) -> None:
        source, kept = Mint(20261127), "kept-of-the-gateway"
        secrets = [source.secret() for _ in range(28)]
        for number, (prompt, answer) in enumerate(zip(secrets[::2], secrets[1::2], strict=True)):
            outside.text = f"Log in with {answer.text}"
            said = [{"role": "user", "content": f"Why does {prompt.text} fail?"}]
            await asking.generate(memory, said, key=f"planted-{number}", deadline_s=20)
        outside.text = kept
        await generated(asking, memory, "kept")
        async with house.superuser() as connection:
            found = await in_database(connection, Needles((*(each.needle for each in secrets), kept)))
        assert found.keys() == {kept}, found

    async def test_a_busy_provider_is_asked_again_within_the_deadline(
        self, asking: Gateway, memory: Memory, outside: World, house: House, project: str
    ) -> None:
        outside.answers = [JSONResponse({"error": {"message": "busy"}}, 503), JSONResponse({"error": {}}, 429)]
        assert (await generated(asking, memory, "k")).text == outside.text
        assert len(outside.seen) == 3
        assert (await spend(house, project))["calls"] == 1

    async def test_what_stays_busy_costs_nothing_and_may_be_tried_again(
        self, asking: Gateway, memory: Memory, outside: World, house: House, project: str
    ) -> None:
        outside.answers = [JSONResponse({"error": {"message": "busy"}}, 500) for _ in range(3)]
        with pytest.raises(Transient, match="500"):
            await generated(asking, memory, "k")
        assert len(outside.seen) == 3
        assert (await call(house, memory, "k"))["state"] == "released"
        kept = await spend(house, project)
        assert (kept["spent_tokens"], kept["reserved_tokens"], kept["calls"]) == (0, 0, 0)
        assert (await generated(asking, memory, "k")).text == outside.text
        assert (await call(house, memory, "k", number=1))["state"] == "settled"

    async def test_what_a_provider_refuses_is_refused(
        self, asking: Gateway, memory: Memory, outside: World, house: House, project: str
    ) -> None:
        outside.answers = [JSONResponse({"error": {"message": "no such key"}}, 401)]
        with pytest.raises(Permanent, match="refused"):
            await generated(asking, memory, "k")
        assert len(outside.seen) == 1
        assert (await call(house, memory, "k"))["state"] == "released"

    async def test_a_provider_that_is_not_there_has_done_nothing(
        self, asking: Gateway, memory: Memory, monkeypatch: pytest.MonkeyPatch, house: House, project: str
    ) -> None:
        monkeypatch.setenv("OPENAI_API_BASE", "http://127.0.0.1:9/v1")
        with pytest.raises(Transient, match="not reachable"):
            await generated(asking, memory, "k")
        assert (await call(house, memory, "k"))["state"] == "released"

    async def test_one_that_does_not_answer_in_time_counts_at_the_estimate(
        self, asking: Gateway, memory: Memory, outside: World, house: House, project: str
    ) -> None:
        outside.hold.clear()
        with pytest.raises(Permanent, match="unknown_outcome"):
            await generated(asking, memory, "k", deadline_s=2, max_tokens=50)
        kept = await call(house, memory, "k")
        assert kept["state"] == "unknown"
        total = await spend(house, project)
        assert total["spent_tokens"] == kept["estimate_input_tokens"] + 50
        assert (total["unknown"], total["reserved_tokens"]) == (1, 0)
        outside.hold.set()
        with pytest.raises(Permanent, match="unknown_outcome"):
            await generated(asking, memory, "k", max_tokens=50)
        assert len(outside.seen) == 1

    async def test_a_connection_that_breaks_is_an_unknown_outcome_not_an_answer(
        self, asking: Gateway, memory: Memory, monkeypatch: pytest.MonkeyPatch, house: House, project: str
    ) -> None:
        taken = 0

        async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal taken
            await reader.readuntil(b"\r\n\r\n")
            taken += 1
            writer.close()

        server = await asyncio.start_server(break_off, "127.0.0.1", 0)
        async with server:
            monkeypatch.setenv("OPENAI_API_BASE", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
            with pytest.raises(Permanent, match="unknown_outcome"):
                await generated(asking, memory, "k")
        assert taken == 1
        assert (await call(house, memory, "k"))["state"] == "unknown"

    async def test_an_answer_that_is_none_is_an_unknown_outcome(
        self, asking: Gateway, memory: Memory, outside: World
    ) -> None:
        outside.answers = [JSONResponse({"object": "list", "data": [], "model": "m", "usage": {"prompt_tokens": 1,
                                         "total_tokens": 1}})]  # fmt: skip
        with pytest.raises(Permanent, match="unknown_outcome"):
            await asking.embed(memory, ["a"], key="v", deadline_s=20)

    async def test_what_nobody_foresaw_is_settled_as_an_unknown_outcome(
        self, asking: Gateway, memory: Memory, house: House, project: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def surprised(*asked: Any) -> Any:
            raise KeyError("nobody thought of this")

        monkeypatch.setattr(ModelProvider, "call", surprised)
        with pytest.raises(Permanent, match="unknown_outcome"):
            await generated(asking, memory, "k")
        assert (await call(house, memory, "k"))["error"] == "unexpected KeyError"
        total = await spend(house, project)
        assert (total["unknown"], total["reserved_tokens"]) == (1, 0)


class TestBudgets:
    async def test_parallel_calls_never_exceed_it(
        self, asking: Gateway, listening: tuple[str, ModelGateway], door: Door, outside: World, project: str
    ) -> None:
        limit = Decimal("0.0004")
        outside.output_tokens = 100
        working = developer(door, await delegated(door.house, project, "t-1", usd=str(limit)))
        async with gateway(door, OUTSIDE) as (other, _):
            beside = client(other)
            made = await asyncio.gather(
                *(
                    generated(asking if n % 2 else beside, working, f"k{n}", max_tokens=100, deadline_s=60)
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

    async def test_tokens_have_a_limit_too(self, asking: Gateway, door: Door, project: str) -> None:
        working = developer(door, await delegated(door.house, project, "t-1", tokens=300))
        await generated(asking, working, "k", max_tokens=150)
        with pytest.raises(Denied, match="budget"):
            await generated(asking, working, "l", max_tokens=250)

    async def test_a_price_that_rises_during_a_call_is_paid_once_and_ends_the_budget(
        self, asking: Gateway, door: Door, outside: World, project: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        working = developer(door, await delegated(door.house, project, "t-1", usd="0.001"))
        under_way = await begun(outside, generated(asking, working, "k", max_tokens=100))
        price = ModelProvider._price
        monkeypatch.setattr(ModelProvider, "_price", lambda *given: price(*given) * 1000)
        outside.hold.set()
        cost = 1000 * (Decimal("0.00000015") * 20 + Decimal("0.0000006") * 5)
        assert (await under_way).usage.cost_usd == cost
        assert (await generated(asking, working, "k", max_tokens=100)).usage.cost_usd == cost
        with pytest.raises(Denied, match="budget"):
            await generated(asking, working, "l", max_tokens=100)
        total = await spend(door.house, project)
        assert (Decimal(total["spent_usd"]), Decimal(total["reserved_usd"]), total["calls"]) == (cost, 0, 1)
        assert len(outside.seen) == 1

    async def test_dollars_do_not_pay_for_what_has_no_price(
        self, listening: tuple[str, ModelGateway], door: Door, outside: World, project: str
    ) -> None:
        working = developer(door, await delegated(door.house, project, "t-1", usd="10"))
        asking = client(listening[0], UNPRICED)
        with pytest.raises(Denied, match="price is known"):
            await generated(asking, working, "k")
        await asking.close()
        assert not outside.seen


class TestFallbacks:
    """Another model writes where one cannot be called, once per key."""

    @pytest.fixture
    async def others(self, door: Door) -> AsyncIterator[Gateway]:
        """A gateway whose first model is dear, with two fallbacks."""
        limits = ProviderLimits(models=(DEAR,), fallbacks=(PRICED, UNPRICED), tries=1)
        async with gateway(door, limits) as (url, _):
            made = client(url, DEAR)
            yield made
            await made.close()

    async def test_an_unavailable_provider_is_replaced_and_tried_last_for_a_while(
        self, others: Gateway, memory: Memory, outside: World, house: House
    ) -> None:
        outside.answers = [Response(status_code=503)]
        made = await generated(others, memory, "k")
        assert (made.usage.model, made.text) == (PRICED, outside.text)
        assert [body["model"] for body in outside.seen] == [name(DEAR), name(PRICED)]
        assert (await call(house, memory, "k"))["state"] == "released"
        assert (await call(house, memory, "k", 1))["model"] == PRICED
        again = await generated(others, memory, "k")
        assert (again.usage.model, again.usage.replayed, len(outside.seen)) == (PRICED, True, 2)
        await generated(others, memory, "l")
        assert [body["model"] for body in outside.seen[2:]] == [name(PRICED)]

    async def test_a_key_is_paid_for_once_when_the_first_model_is_back(
        self, others: Gateway, door: Door, memory: Memory, outside: World
    ) -> None:
        outside.answers = [Response(status_code=503)]
        await generated(others, memory, "k")
        limits = ProviderLimits(models=(DEAR,), fallbacks=(PRICED, UNPRICED), tries=1)
        async with gateway(door, limits) as (url, _):
            restarted = client(url, DEAR)
            again = await generated(restarted, memory, "k")
            await restarted.close()
        assert (again.usage.model, again.usage.replayed, len(outside.seen)) == (PRICED, True, 2)

    async def test_a_budget_that_covers_only_a_cheaper_model_pays_for_it(
        self, others: Gateway, door: Door, outside: World, project: str
    ) -> None:
        working = developer(door, await delegated(door.house, project, "t-1", usd="0.0005"))
        made = await generated(others, working, "k", max_tokens=200)
        assert made.usage.model == PRICED
        assert [body["model"] for body in outside.seen] == [name(PRICED)]
        with pytest.raises(Denied, match="budget"):
            await generated(others, working, "l", max_tokens=8000)

    async def test_an_outcome_that_is_unknown_is_not_made_up_for_by_another_model(
        self, others: Gateway, memory: Memory, outside: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def surprised(*asked: Any) -> Any:
            raise KeyError("a defect")

        monkeypatch.setattr(ModelProvider, "call", surprised)
        with pytest.raises(Permanent, match="unknown_outcome"):
            await generated(others, memory, "k")
        assert not outside.seen

    async def test_the_first_failure_is_reported_when_no_model_can_be_called(
        self, others: Gateway, memory: Memory, outside: World
    ) -> None:
        outside.answers = [Response(status_code=status) for status in (401, 503, 429)]
        with pytest.raises(Permanent, match="refused"):
            await generated(others, memory, "k")
        assert len(outside.seen) == 3


class TestKilled:
    async def test_before_the_reservation_nothing_is_left(
        self, door: Door, outside: World, memory: Memory, asking: Gateway, house: House, project: str
    ) -> None:
        await self._killed_at(door, memory, "reserve")
        assert not outside.seen
        assert (await generated(asking, memory, "k")).text == outside.text

    async def test_between_reserving_and_settling_the_outcome_is_unknown_and_counted(
        self, door: Door, outside: World, memory: Memory, asking: Gateway, house: House, project: str
    ) -> None:
        await self._killed_at(door, memory, "settle")
        kept = await call(house, memory, "k")
        assert kept["state"] == "reserved"
        with pytest.raises(Transient, match="another process"):
            await generated(asking, memory, "k")
        await self._over(house, memory, "k")
        memory = developer(door, memory.origin.message_id)
        with pytest.raises(Permanent, match="unknown_outcome"):
            await generated(asking, memory, "k")
        assert len(outside.seen) == 1
        total = await spend(house, project)
        assert total["spent_tokens"] == kept["estimate_input_tokens"] + kept["estimate_output_tokens"]
        assert (total["reserved_tokens"], total["unknown"]) == (0, 1)
        assert (await generated(asking, memory, "k again")).text == outside.text

    @staticmethod
    async def _killed_at(door: Door, memory: Memory, step: str) -> None:
        """A gateway that ends right before the commit of this step."""
        reached = asyncio.Event()

        async def stand_in_the_way(subject: str, body: bytes) -> None:
            if f'"step":"{step} '.encode() in body:
                reached.set()
                await asyncio.Event().wait()

        other = Door(door.house)
        other.before = stand_in_the_way
        async with gateway(other, OUTSIDE) as (url, made):
            asking = client(url)
            dying = asyncio.create_task(generated(asking, memory, "k"))
            await reached.wait()
            for _, task in list(made._running.values()):
                task.cancel()
            with pytest.raises((Transient, asyncio.CancelledError)):
                await dying
            await asking.close()

    @staticmethod
    async def _over(house: House, memory: Memory, key: str) -> None:
        """The time of the dead process is over."""
        async with house.superuser() as connection:
            await connection.execute(
                "UPDATE records SET body = jsonb_set(body, '{deadline}', '\"2026-01-01T00:00:00Z\"')"
                " WHERE project = $1 AND store = 'model_calls' AND id = $2",
                memory.project,
                derived_id(memory.origin.message_id, "call", key, 0),
            )
        house.restart()

    async def test_a_call_of_a_task_that_has_ended_meanwhile_is_still_settled(
        self, asking: Gateway, memory: Memory, outside: World, house: House, project: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        monkeypatch.setattr("counterpoint.manager.gateway.gateway.CHECKED_EVERY_S", 60)
        under_way = await begun(outside, generated(asking, memory, "k"))
        await end_task(house, project)
        outside.hold.set()
        assert (await under_way).text == outside.text
        assert (await call(house, memory, "k"))["state"] == "settled"
        with pytest.raises(Denied, match="ended"):
            await generated(asking, memory, "l")
        assert len(outside.seen) == 1

    async def test_a_call_is_stopped_when_its_task_ends(
        self, asking: Gateway, memory: Memory, outside: World, house: House, project: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        monkeypatch.setattr("counterpoint.manager.gateway.gateway.CHECKED_EVERY_S", 0.02)
        under_way = await begun(outside, generated(asking, memory, "k", max_tokens=50))
        await end_task(house, project)
        with pytest.raises(Permanent, match="the call was stopped"):
            await under_way
        kept, total = await call(house, memory, "k"), await spend(house, project)
        assert (kept["state"], "ended" in kept["error"]) == ("unknown", True)
        assert total["spent_tokens"] == kept["estimate_input_tokens"] + 50
        assert (total["reserved_tokens"], total["unknown"]) == (0, 1)

    async def test_a_call_is_stopped_when_its_token_is_revoked_and_its_reservation_stays(
        self, listening: tuple[str, ModelGateway], memory: Memory, outside: World, house: House, project: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        monkeypatch.setattr("counterpoint.manager.gateway.gateway.CHECKED_EVERY_S", 0.02)
        token = await memory.gateway_token("model")
        under_way = await begun(outside, listening[1].call(token, "k", GenerateCall(PRICED, (("user", "?"),), 50), 60))
        revoked = revocation_ids(token)[0]
        write = Write(store="revocations", id=revoked, body={"revocation_id": revoked})
        await house.done("router", house.standing(project, principal=PERSON), writes=(write,))
        with pytest.raises(Denied, match="revoked"):
            await under_way
        assert (await call(house, memory, "k"))["state"] == "reserved"
        assert (await spend(house, project))["reserved_tokens"] > 50

    async def test_a_call_goes_on_while_memory_is_not_reachable(
        self, memory: Memory, door: Door, outside: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("counterpoint.manager.gateway.gateway.CHECKED_EVERY_S", 0.02)
        outside.hold.clear()
        checked = asyncio.Event()

        async def away(subject: str, body: bytes) -> None:
            if subject.endswith(".query") and outside.seen and not outside.hold.is_set():
                checked.set()
                raise Transient("memory is away")

        other = Door(door.house)
        other.before = away
        async with gateway(other, OUTSIDE) as (url, _):
            asking = client(url)
            under_way = asyncio.create_task(generated(asking, memory, "k"))
            await checked.wait()
            outside.hold.set()
            assert (await under_way).text == outside.text
            await asking.close()


class TestWeb:
    async def test_pages_are_found_and_cut(
        self, asking: Gateway, memory: Memory, outside: World, house: House, project: str
    ) -> None:
        outside.pages = [
            {"title": f"Page {n}", "url": f"https://example.org/{n}", "content": "words " * 1000} for n in range(30)
        ]
        outside.pages.insert(0, {"title": "no page", "url": "javascript:alert(1)", "content": ""})
        found = await asking.search_web(memory, "disk full", key="s", deadline_s=20, count=3)
        assert [page.title for page in found.results] == ["Page 0", "Page 1", "Page 2"]
        assert all(len(page.snippet) <= 1000 for page in found.results)
        assert outside.seen == [{"q": "disk full", "format": "json"}]
        kept = await call(house, memory, "s")
        assert (kept["kind"], kept["cost_usd"]) == ("search", "0.000000000")
        assert await asking.search_web(memory, "disk full", key="s", deadline_s=20, count=3) == found
        assert len(outside.seen) == 1

    async def test_what_is_written_after_a_search_is_untrusted(
        self, asking: Gateway, memory: Memory, house: House, door: Door, project: str
    ) -> None:
        async def integrity(of: Memory, record_id: str) -> int:
            body = rest("actions", record_id, project, "t-1", "developer")
            write = Write(store="actions", id=record_id, body=body)
            await of.step(Commit(step=record_id, last=False, writes=(write,)))
            async with house.superuser() as connection:
                return int(
                    await connection.fetchval(
                        "SELECT integrity FROM records WHERE project = $1 AND id = $2", project, record_id
                    )
                )

        await generated(asking, memory, "g")
        assert await integrity(memory, "before") == 1
        await asking.search_web(memory, "disk full", key="s", deadline_s=20)
        assert await integrity(memory, "after") == 0

    @pytest.mark.parametrize(
        ("autonomy", "permitted", "searches"),
        [("supervised", "disk full", 1), ("supervised", "disk", 0), ("milestone", None, 1), ("autonomous", None, 0)],
    )
    async def test_a_search_needs_the_permit_that_the_policy_asks_for(
        self, door: Door, outside: World, project: str, autonomy: str, permitted: str | None, searches: int
    ) -> None:
        acts = policy().approvals.acts | {"web": {"supervised": "ask", "milestone": "allow", "autonomous": "refuse"}}
        asking = policy().approvals.model_copy(update={"acts": acts})
        message = await delegated(door.house, project, "t-1", {"autonomy": autonomy, "permitted_search": permitted})
        limits = ProviderLimits(search_url=outside.url, approvals=asking)
        async with gateway(door, limits) as (url, _):
            made = client(url, searches_web=True)
            with nullcontext() if searches else pytest.raises(Denied, match="not_approved"):
                await made.search_web(developer(door, message), "disk full", key="s", deadline_s=20)
            await made.close()
        assert len(outside.seen) == searches

    async def test_a_search_that_says_something_else_is_refused(
        self, asking: Gateway, memory: Memory, outside: World, house: House, project: str
    ) -> None:
        outside.answers = [JSONResponse("no"), Response("[" * 100_000)]
        for key in ("s", "deep"):
            with pytest.raises(Permanent, match="refused"):
                await asking.search_web(memory, "disk full", key=key, deadline_s=20)
            assert (await call(house, memory, key))["state"] == "released"

    async def test_a_search_whose_answer_does_not_end_is_left(self, memory: Memory, door: Door) -> None:
        written, most = 0, 256 * 2**20

        async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal written
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            with suppress(ConnectionError):
                while written < most:
                    writer.write(b" " * 65536)
                    written += 65536
                    await writer.drain()
            writer.close()

        async with await asyncio.start_server(endless, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with gateway(door, replace(OUTSIDE, search_url=url)) as (listening, _):
                asking = client(listening, searches_web=True)
                with pytest.raises(Permanent, match="refused"):
                    await asking.search_web(memory, "disk full", key="s", deadline_s=20)
                await asking.close()
        assert written < most


class TestTokens:
    async def test_one_that_memory_has_not_made_is_refused(
        self, listening: tuple[str, ModelGateway], memory: Memory, outside: World
    ) -> None:
        held = await memory.gateway_token("model")
        grant = unverified_grant(held)
        other = Keyring((SigningKey.generate(1),))
        for token, codes in (
            ("-", {"malformed"}),
            ("no token", {"malformed"}),
            (held[:-8] + "AAAAAAAA", {"malformed", "signature"}),  # by the padding of the token
            (mint(other, grant), {"signature"}),
        ):
            answer = await posted(listening[0], "/v1/chat/completions", token, {"messages": QUESTION})
            assert answer.status_code == 401
            assert answer.json()["error"]["code"] in codes, answer.text
        assert not outside.seen

    async def test_one_that_memory_has_made_for_something_else_is_refused(
        self, listening: tuple[str, ModelGateway], memory: Memory, outside: World, house: House
    ) -> None:
        grant = unverified_grant(await memory.gateway_token("model"))
        soon = datetime.now(UTC) + timedelta(seconds=5)
        for changed, status, code in (
            ({"expires_at": soon}, 401, "expired"),
            ({"audience": "developer"}, 401, "audience"),
            ({"task": "t-2"}, 403, "task"),
            ({"message": new_id()}, 403, "message"),
        ):
            token = mint(house.keyring, grant.model_copy(update=changed))
            answer = await posted(listening[0], "/v1/chat/completions", token, {"messages": QUESTION})
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
        web = await memory.gateway_token("web")
        answer = await posted(listening[0], "/v1/chat/completions", web, {"messages": QUESTION})
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "audience")
        assert memory.origin.capability is not None
        answer = await posted(listening[0], "/v1/chat/completions", memory.origin.capability, {"messages": QUESTION})
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "audience")
        assert not outside.seen

    async def test_the_call_of_a_forged_one_is_not_that_of_another_with_its_key(
        self, listening: tuple[str, ModelGateway], memory: Memory, door: Door
    ) -> None:
        held = await memory.gateway_token("model")
        forged = mint(Keyring((SigningKey.generate(1),)), unverified_grant(held))
        asked, genuine_asked, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def hold(_: str, body: bytes) -> None:
            if forged.encode() in body:
                asked.set()
                await go_on.wait()
            elif held.encode() in body:
                genuine_asked.set()

        door.before = hold
        path = "/v1/chat/completions"
        other = {"messages": [{"role": "user", "content": "Something else?"}]}
        attack = asyncio.create_task(posted(listening[0], path, forged, other, Idempotency_Key="k"))
        await asked.wait()
        call = asyncio.create_task(posted(listening[0], path, held, {"messages": QUESTION}, Idempotency_Key="k"))
        await genuine_asked.wait()
        go_on.set()
        assert (await call).status_code == 200
        assert (await attack).status_code == 401

    async def test_a_forged_one_is_refused_before_its_body_has_arrived(
        self, listening: tuple[str, ModelGateway], memory: Memory
    ) -> None:
        forged = mint(Keyring((SigningKey.generate(1),)), unverified_grant(await memory.gateway_token("model")))
        url = urlsplit(listening[0])
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        writer.write(
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {forged}\r\n"
            f"Content-Length: {BODY_LIMIT_BYTES}\r\n\r\n".encode()
            + b" " * (2 * UNCHECKED_BYTES)
        )
        assert b" 401 " in await reader.readline()
        writer.close()

    async def test_what_was_kept_is_for_its_own_task_alone(
        self, asking: Gateway, memory: Memory, door: Door, project: str, outside: World
    ) -> None:
        first = await generated(asking, memory, "k")
        outside.text = "It was the net."
        other = developer(door, await delegated(door.house, project, "t-2"))
        assert (await generated(asking, other, "k")).text != first.text


class TestRequests:
    async def test_only_configured_models_are_called(
        self, listening: tuple[str, ModelGateway], memory: Memory, outside: World
    ) -> None:
        body = {"model": "openai/gpt-4o", "messages": QUESTION}
        answer = await posted(listening[0], "/v1/chat/completions", await memory.gateway_token("model"), body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "model")
        assert not outside.seen

    async def test_any_client_of_such_an_api_may_ask(self, listening: tuple[str, ModelGateway], memory: Memory) -> None:
        token = await memory.gateway_token("model")
        answer = await posted(listening[0], "/v1/chat/completions", token, {"messages": QUESTION})
        assert answer.json()["choices"][0]["message"] == {"role": "assistant", "content": "It was the disk."}
        answer = await posted(listening[0], "/v1/embeddings", token, {"input": "a"})
        assert len(answer.json()["data"][0]["embedding"]) == 384

    @pytest.mark.parametrize(
        ("body", "field"),
        [({"messages": []}, "messages"), ({"messages": QUESTION, "stream": "often"}, "stream"), ([], "")],
    )
    async def test_what_is_wrong_with_a_request_is_named(
        self, listening: tuple[str, ModelGateway], memory: Memory, body: Any, field: str
    ) -> None:
        answer = await posted(listening[0], "/v1/chat/completions", await memory.gateway_token("model"), body)
        assert answer.status_code == 422
        assert answer.json()["error"]["problems"][0]["field"] == field

    async def test_what_is_not_configured_is_said_without_a_call(self, memory: Memory, door: Door) -> None:
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
    door: Door, project: str, outside: World, listening: tuple[str, ModelGateway]
) -> None:
    """Also after the task has ended, by rules then; and once, however often the message is delivered."""
    house, line = door.house, "Ana restarts the resolver."
    at = {"submitted_by": "ana", "submitted_at": "2026-11-20T12:00:00Z", "project": project}
    first = {"description": "Who restarts the resolver?", "result": "Ana restarts the resolver.", **at}
    routed = await house.routed(project, "t-1")
    ended = Write(store="tasks", id="t-1", body=task_body("t-1", "completed", **first))
    await house.done("manager", house.handed(routed), writes=(ended,))
    session = SessionRecord.model_validate({
        "session_id": "s", "project": project, "task_ids": ("t-1", "t-2"), "summary": "question: Who?",
        "opened_at": at["submitted_at"], "continued_at": at["submitted_at"],
    })  # fmt: skip
    second = task_body("t-2", description="And the database?", session_id="s", budget={"usd": "1"}, **at)
    message = SummarizeSession(task_id="t-2", session_id="s")
    done = await house.done(
        "manager", house.handed(await house.routed(project, "t-2")),
        writes=(
            Write(store="tasks", id="t-2", body=second),
            Write(store="sessions", id="s", body=session.model_dump(mode="json")),
        ),
        messages=(Outgoing(type=SummarizeSession.TYPE, data=message.model_dump(mode="json")),),
    )  # fmt: skip
    outside.text = f"{line}\nCall +49 30 1234."
    asked = client(listening[0])

    async def summarized() -> dict[str, Any]:
        manager = Memory(door, "manager", house.handed(done.message_ids[0], lives_s=3600), datetime.now(UTC))
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

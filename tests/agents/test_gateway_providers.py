"""Providers that fail or are busy, the models that replace them, and web searches."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

import pytest
from agents.gateway_calls import DEAR, OUTSIDE, call, generated, name, spend
from agents.gateway_world import PRICED, UNPRICED, Door, World, client, delegated, developer, gateway
from flows.found_secrets import Needles, in_database
from flows.planted_secrets import Mint
from memory_service.house import House
from memory_service.record_bodies import rest
from starlette.responses import JSONResponse, Response

from counterpoint.client import Gateway, Memory
from counterpoint.guard.policy import policy
from counterpoint.manager.gateway.gateway import ModelGateway
from counterpoint.manager.gateway.models import ModelProvider
from counterpoint.manager.gateway.provider_limits import ProviderLimits
from counterpoint.proto.errors import Denied, Permanent, Transient
from counterpoint.proto.memory import Commit, Write

pytestmark = pytest.mark.xdist_group("litellm")  # its import takes seconds


@pytest.fixture
async def gateway_server(door: Door, outside: World) -> AsyncIterator[tuple[str, ModelGateway]]:
    """A gateway to the world outside."""
    async with gateway(door, replace(OUTSIDE, search_url=outside.url)) as made:
        yield made


@pytest.fixture
async def model_client(gateway_server: tuple[str, ModelGateway]) -> AsyncIterator[Gateway]:
    """The developer's client of it."""
    made = client(gateway_server[0], searches_web=True)
    yield made
    await made.close()


class TestProviders:
    async def test_no_secret_of_a_prompt_or_an_answer_is_kept(
        self, model_client: Gateway, memory: Memory, outside: World, house: House
    ) -> None:
        source, kept = Mint(20261127), "kept-of-the-gateway"
        secrets = [source.secret() for _ in range(28)]
        for number, (prompt, answer) in enumerate(zip(secrets[::2], secrets[1::2], strict=True)):
            outside.text = f"Log in with {answer.text}"
            said = [{"role": "user", "content": f"Why does {prompt.text} fail?"}]
            await model_client.generate(memory, said, key=f"planted-{number}", deadline_s=20)
        outside.text = kept
        await generated(model_client, memory, "kept")
        async with house.superuser() as connection:
            found = await in_database(connection, Needles((*(each.needle for each in secrets), kept)))
        assert found.keys() == {kept}, found

    async def test_a_busy_provider_is_asked_again_within_the_deadline(
        self, model_client: Gateway, memory: Memory, outside: World, house: House, project: str
    ) -> None:
        outside.answers = [JSONResponse({"error": {"message": "busy"}}, 503), JSONResponse({"error": {}}, 429)]
        assert (await generated(model_client, memory, "k")).text == outside.text
        assert len(outside.seen) == 3
        assert (await spend(house, project))["calls"] == 1

    async def test_a_call_to_a_busy_provider_costs_nothing_and_can_be_retried(
        self, model_client: Gateway, memory: Memory, outside: World, house: House, project: str
    ) -> None:
        outside.answers = [JSONResponse({"error": {"message": "busy"}}, 500) for _ in range(3)]
        with pytest.raises(Transient, match="500"):
            await generated(model_client, memory, "k")
        assert len(outside.seen) == 3
        assert (await call(house, memory, "k"))["state"] == "released"
        kept = await spend(house, project)
        assert (kept["spent_tokens"], kept["reserved_tokens"], kept["calls"]) == (0, 0, 0)
        assert (await generated(model_client, memory, "k")).text == outside.text
        assert (await call(house, memory, "k", number=1))["state"] == "settled"

    async def test_a_refusal_of_the_provider_is_permanent(
        self, model_client: Gateway, memory: Memory, outside: World, house: House, project: str
    ) -> None:
        outside.answers = [JSONResponse({"error": {"message": "no such key"}}, 401)]
        with pytest.raises(Permanent, match="refused"):
            await generated(model_client, memory, "k")
        assert len(outside.seen) == 1
        assert (await call(house, memory, "k"))["state"] == "released"

    async def test_a_provider_that_is_not_there_has_done_nothing(
        self, model_client: Gateway, memory: Memory, monkeypatch: pytest.MonkeyPatch, house: House, project: str
    ) -> None:
        monkeypatch.setenv("OPENAI_API_BASE", "http://127.0.0.1:9/v1")
        with pytest.raises(Transient, match="not reachable"):
            await generated(model_client, memory, "k")
        assert (await call(house, memory, "k"))["state"] == "released"

    async def test_a_provider_timeout_is_settled_at_the_estimate(
        self, model_client: Gateway, memory: Memory, outside: World, house: House, project: str
    ) -> None:
        outside.hold.clear()
        with pytest.raises(Permanent, match="unknown_outcome"):
            await generated(model_client, memory, "k", deadline_s=2, max_tokens=50)
        kept = await call(house, memory, "k")
        assert kept["state"] == "unknown"
        total = await spend(house, project)
        assert total["spent_tokens"] == kept["estimate_input_tokens"] + 50
        assert (total["unknown"], total["reserved_tokens"]) == (1, 0)
        outside.hold.set()
        with pytest.raises(Permanent, match="unknown_outcome"):
            await generated(model_client, memory, "k", max_tokens=50)
        assert len(outside.seen) == 1

    async def test_a_connection_that_breaks_is_an_unknown_outcome_not_an_answer(
        self, model_client: Gateway, memory: Memory, monkeypatch: pytest.MonkeyPatch, house: House, project: str
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
                await generated(model_client, memory, "k")
        assert taken == 1
        assert (await call(house, memory, "k"))["state"] == "unknown"

    async def test_a_malformed_answer_is_an_unknown_outcome(
        self, model_client: Gateway, memory: Memory, outside: World
    ) -> None:
        outside.answers = [JSONResponse({"object": "list", "data": [], "model": "m", "usage": {"prompt_tokens": 1,
                                         "total_tokens": 1}})]  # fmt: skip
        with pytest.raises(Permanent, match="unknown_outcome"):
            await model_client.embed(memory, ["a"], key="v", deadline_s=20)

    async def test_an_unexpected_error_is_settled_as_an_unknown_outcome(
        self, model_client: Gateway, memory: Memory, house: House, project: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def surprised(*asked: Any) -> Any:
            raise KeyError("nobody thought of this")

        monkeypatch.setattr(ModelProvider, "call", surprised)
        with pytest.raises(Permanent, match="unknown_outcome"):
            await generated(model_client, memory, "k")
        assert (await call(house, memory, "k"))["error"] == "unexpected KeyError"
        total = await spend(house, project)
        assert (total["unknown"], total["reserved_tokens"]) == (1, 0)


class TestFallbacks:
    """Another model writes where one cannot be called, once per key."""

    @pytest.fixture
    async def fallback_client(self, door: Door) -> AsyncIterator[Gateway]:
        """A gateway whose first model is dear, with two fallbacks."""
        limits = ProviderLimits(models=(DEAR,), fallbacks=(PRICED, UNPRICED), tries=1)
        async with gateway(door, limits) as (url, _):
            made = client(url, DEAR)
            yield made
            await made.close()

    async def test_an_unavailable_provider_is_replaced_and_tried_last_for_a_while(
        self, fallback_client: Gateway, memory: Memory, outside: World, house: House
    ) -> None:
        outside.answers = [Response(status_code=503)]
        made = await generated(fallback_client, memory, "k")
        assert (made.usage.model, made.text) == (PRICED, outside.text)
        assert [body["model"] for body in outside.seen] == [name(DEAR), name(PRICED)]
        assert (await call(house, memory, "k"))["state"] == "released"
        assert (await call(house, memory, "k", 1))["model"] == PRICED
        again = await generated(fallback_client, memory, "k")
        assert (again.usage.model, again.usage.replayed, len(outside.seen)) == (PRICED, True, 2)
        await generated(fallback_client, memory, "l")
        assert [body["model"] for body in outside.seen[2:]] == [name(PRICED)]

    async def test_a_key_is_paid_for_once_when_the_first_model_is_back(
        self, fallback_client: Gateway, door: Door, memory: Memory, outside: World
    ) -> None:
        outside.answers = [Response(status_code=503)]
        await generated(fallback_client, memory, "k")
        limits = ProviderLimits(models=(DEAR,), fallbacks=(PRICED, UNPRICED), tries=1)
        async with gateway(door, limits) as (url, _):
            restarted = client(url, DEAR)
            again = await generated(restarted, memory, "k")
            await restarted.close()
        assert (again.usage.model, again.usage.replayed, len(outside.seen)) == (PRICED, True, 2)

    async def test_a_budget_that_covers_only_a_cheaper_model_pays_for_it(
        self, fallback_client: Gateway, door: Door, outside: World, project: str
    ) -> None:
        working = developer(door, await delegated(door.house, project, "t-1", usd="0.0005"))
        made = await generated(fallback_client, working, "k", max_tokens=200)
        assert made.usage.model == PRICED
        assert [body["model"] for body in outside.seen] == [name(PRICED)]
        with pytest.raises(Denied, match="budget"):
            await generated(fallback_client, working, "l", max_tokens=8000)

    async def test_an_outcome_that_is_unknown_is_not_made_up_for_by_another_model(
        self, fallback_client: Gateway, memory: Memory, outside: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def surprised(*asked: Any) -> Any:
            raise KeyError("a defect")

        monkeypatch.setattr(ModelProvider, "call", surprised)
        with pytest.raises(Permanent, match="unknown_outcome"):
            await generated(fallback_client, memory, "k")
        assert not outside.seen

    async def test_the_first_failure_is_reported_when_no_model_can_be_called(
        self, fallback_client: Gateway, memory: Memory, outside: World
    ) -> None:
        outside.answers = [Response(status_code=status) for status in (401, 503, 429)]
        with pytest.raises(Permanent, match="refused"):
            await generated(fallback_client, memory, "k")
        assert len(outside.seen) == 3


class TestWeb:
    async def test_pages_are_found_and_cut(
        self, model_client: Gateway, memory: Memory, outside: World, house: House, project: str
    ) -> None:
        outside.pages = [
            {"title": f"Page {n}", "url": f"https://example.org/{n}", "content": "words " * 1000} for n in range(30)
        ]
        outside.pages.insert(0, {"title": "no page", "url": "javascript:alert(1)", "content": ""})
        found = await model_client.search_web(memory, "disk full", key="s", deadline_s=20, count=3)
        assert [page.title for page in found.results] == ["Page 0", "Page 1", "Page 2"]
        assert all(len(page.snippet) <= 1000 for page in found.results)
        assert outside.seen == [{"q": "disk full", "format": "json"}]
        kept = await call(house, memory, "s")
        assert (kept["kind"], kept["cost_usd"]) == ("search", "0.000000000")
        assert await model_client.search_web(memory, "disk full", key="s", deadline_s=20, count=3) == found
        assert len(outside.seen) == 1

    async def test_writes_after_a_web_search_are_untrusted(
        self, model_client: Gateway, memory: Memory, house: House, door: Door, project: str
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

        await generated(model_client, memory, "g")
        assert await integrity(memory, "before") == 1
        await model_client.search_web(memory, "disk full", key="s", deadline_s=20)
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
        self, model_client: Gateway, memory: Memory, outside: World, house: House, project: str
    ) -> None:
        outside.answers = [JSONResponse("no"), Response("[" * 100_000)]
        for key in ("s", "deep"):
            with pytest.raises(Permanent, match="refused"):
                await model_client.search_web(memory, "disk full", key=key, deadline_s=20)
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

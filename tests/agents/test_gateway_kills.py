"""Gateways that are killed and calls that are stopped leave no call unpaid and none paid twice."""

import asyncio

import pytest
from agents.gateway_calls import OUTSIDE, begun, call, end_task, generated, killed_at, pass_deadline, spend
from agents.gateway_world import PRICED, Door, World, client, developer, gateway
from memory_service.house import PERSON, House

from counterpoint.client import Gateway, Memory
from counterpoint.guard.capabilities import revocation_ids
from counterpoint.manager.gateway.calls import GenerateCall
from counterpoint.manager.gateway.gateway import ModelGateway
from counterpoint.proto.errors import Denied, Permanent, Transient
from counterpoint.proto.memory import Write

pytestmark = pytest.mark.xdist_group("litellm")  # its import takes seconds


class TestKills:
    async def test_before_the_reservation_nothing_is_left(
        self, door: Door, outside: World, memory: Memory, model_client: Gateway, house: House, project: str
    ) -> None:
        await killed_at(door, memory, "reserve")
        assert not outside.seen
        assert (await generated(model_client, memory, "k")).text == outside.text

    async def test_between_reserving_and_settling_the_outcome_is_unknown_and_counted(
        self, door: Door, outside: World, memory: Memory, model_client: Gateway, house: House, project: str
    ) -> None:
        await killed_at(door, memory, "settle")
        kept = await call(house, memory, "k")
        assert kept["state"] == "reserved"
        with pytest.raises(Transient, match="another process"):
            await generated(model_client, memory, "k")
        await pass_deadline(house, memory, "k")
        memory = developer(door, memory.origin.message_id)
        with pytest.raises(Permanent, match="unknown_outcome"):
            await generated(model_client, memory, "k")
        assert len(outside.seen) == 1
        total = await spend(house, project)
        assert total["spent_tokens"] == kept["estimate_input_tokens"] + kept["estimate_output_tokens"]
        assert (total["reserved_tokens"], total["unknown"]) == (0, 1)
        assert (await generated(model_client, memory, "k again")).text == outside.text

    async def test_a_call_of_a_task_that_has_ended_meanwhile_is_still_settled(
        self, model_client: Gateway, memory: Memory, outside: World, house: House, project: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        monkeypatch.setattr("counterpoint.manager.gateway.gateway.CHECKED_EVERY_S", 60)
        under_way = await begun(outside, generated(model_client, memory, "k"))
        await end_task(house, project)
        outside.hold.set()
        assert (await under_way).text == outside.text
        assert (await call(house, memory, "k"))["state"] == "settled"
        with pytest.raises(Denied, match="ended"):
            await generated(model_client, memory, "l")
        assert len(outside.seen) == 1

    async def test_a_call_is_stopped_when_its_task_ends(
        self, model_client: Gateway, memory: Memory, outside: World, house: House, project: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        monkeypatch.setattr("counterpoint.manager.gateway.gateway.CHECKED_EVERY_S", 0.02)
        under_way = await begun(outside, generated(model_client, memory, "k", max_tokens=50))
        await end_task(house, project)
        with pytest.raises(Permanent, match="the call was stopped"):
            await under_way
        kept, total = await call(house, memory, "k"), await spend(house, project)
        assert (kept["state"], "ended" in kept["error"]) == ("unknown", True)
        assert total["spent_tokens"] == kept["estimate_input_tokens"] + 50
        assert (total["reserved_tokens"], total["unknown"]) == (0, 1)

    async def test_a_call_is_stopped_when_its_token_is_revoked_and_its_reservation_stays(
        self, gateway_server: tuple[str, ModelGateway], memory: Memory, outside: World, house: House, project: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        monkeypatch.setattr("counterpoint.manager.gateway.gateway.CHECKED_EVERY_S", 0.02)
        token = await memory.gateway_token("model")
        under_way = await begun(
            outside, gateway_server[1].call(token, "k", GenerateCall(PRICED, (("user", "?"),), 50), 60)
        )
        revoked = revocation_ids(token)[0]
        write = Write(store="revocations", id=revoked, body={"revocation_id": revoked})
        await house.apply("router", house.standing(project, principal=PERSON), writes=(write,))
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

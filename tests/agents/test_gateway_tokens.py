"""Tokens of the gateway: only those that memory has made are accepted."""

import asyncio
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest
from agents.gateway_calls import QUESTION, generated
from agents.gateway_world import Door, World, delegated, developer, posted
from memory_service.house import House

from counterpoint.client import Gateway, Memory
from counterpoint.guard.capabilities import Keyring, SigningKey, mint, unverified_grant
from counterpoint.manager.gateway.api import BODY_LIMIT_BYTES, UNCHECKED_BYTES
from counterpoint.manager.gateway.gateway import ModelGateway
from counterpoint.proto.ids import new_id

pytestmark = pytest.mark.xdist_group("litellm")  # its import takes seconds


class TestTokens:
    async def test_a_forged_token_is_refused(
        self, gateway_server: tuple[str, ModelGateway], memory: Memory, outside: World
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
            answer = await posted(gateway_server[0], "/v1/chat/completions", token, {"messages": QUESTION})
            assert answer.status_code == 401
            assert answer.json()["error"]["code"] in codes, answer.text
        assert not outside.seen

    async def test_a_token_for_another_purpose_is_refused(
        self, gateway_server: tuple[str, ModelGateway], memory: Memory, outside: World, house: House
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
            answer = await posted(gateway_server[0], "/v1/chat/completions", token, {"messages": QUESTION})
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
        web = await memory.gateway_token("web")
        answer = await posted(gateway_server[0], "/v1/chat/completions", web, {"messages": QUESTION})
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "audience")
        assert memory.origin.capability is not None
        answer = await posted(
            gateway_server[0], "/v1/chat/completions", memory.origin.capability, {"messages": QUESTION}
        )
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "audience")
        assert not outside.seen

    async def test_a_forged_token_gets_no_outcome_of_another_call_with_its_key(
        self, gateway_server: tuple[str, ModelGateway], memory: Memory, door: Door
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
        attack = asyncio.create_task(posted(gateway_server[0], path, forged, other, Idempotency_Key="k"))
        await asked.wait()
        call = asyncio.create_task(posted(gateway_server[0], path, held, {"messages": QUESTION}, Idempotency_Key="k"))
        await genuine_asked.wait()
        go_on.set()
        assert (await call).status_code == 200
        assert (await attack).status_code == 401

    async def test_a_forged_token_is_refused_before_the_body_has_arrived(
        self, gateway_server: tuple[str, ModelGateway], memory: Memory
    ) -> None:
        forged = mint(Keyring((SigningKey.generate(1),)), unverified_grant(await memory.gateway_token("model")))
        url = urlsplit(gateway_server[0])
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        writer.write(
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {forged}\r\n"
            f"Content-Length: {BODY_LIMIT_BYTES}\r\n\r\n".encode()
            + b" " * (2 * UNCHECKED_BYTES)
        )
        assert b" 401 " in await reader.readline()
        writer.close()

    async def test_a_kept_answer_is_used_for_its_own_task_only(
        self, model_client: Gateway, memory: Memory, door: Door, project: str, outside: World
    ) -> None:
        first = await generated(model_client, memory, "k")
        outside.text = "It was the net."
        other = developer(door, await delegated(door.house, project, "t-2"))
        assert (await generated(model_client, other, "k")).text != first.text

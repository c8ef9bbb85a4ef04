"""No secret of a call of embeddings or a search of the web is kept: of a text, a query, a page, a key or a name."""

from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from agents.gateway_world import EMBEDDING, Door, World, client, gateway, posted, token
from flows.found_secrets import Needles, in_database
from flows.planted_secrets import Mint
from memory_service.house import House
from structlog.testing import capture_logs

from counterpoint.client import Memory
from counterpoint.manager.gateway.provider_limits import ProviderLimits
from counterpoint.proto.errors import CounterpointError

pytestmark = pytest.mark.xdist_group("litellm")
KINDS = 14
"""Kinds of secrets, each of which is planted in each place."""
KEPT = "kept-of-the-calls"


@pytest.fixture
async def url(door: Door, outside: World) -> AsyncIterator[str]:
    """A gateway to the world outside."""
    limits = ProviderLimits(embedding_models=(EMBEDDING,), search_url=outside.url)
    async with gateway(door, limits) as (address, _):
        yield address


async def test_no_secret_of_embeddings_and_searches_is_kept(
    url: str, memory: Memory, outside: World, house: House, project: str
) -> None:
    asking, mint, planted = client(url, searches_web=True), Mint(20261128), list[str]()

    def secret() -> str:
        made = mint.secret()
        planted.append(made.needle)
        return made.text

    models = (await token(house, memory.origin, "model")).token
    web = (await token(house, memory.origin, "web")).token
    assert models is not None
    assert web is not None
    taken = 0
    with capture_logs() as logs:
        for number in range(KINDS):
            await asking.embed(memory, [f"Why does {secret()} fail?", "the disk"], key=f"e-{number}", deadline_s=20)
            page = {"title": f"Page {secret()}", "url": f"https://a.org/?token={secret()}", "content": secret()}
            outside.pages = [page]
            await asking.search_web(memory, f"disk {secret()}", key=f"s-{number}", deadline_s=20)
            outside.pages = []
            path, bearer, body = (
                ("/v1/embeddings", models, {"input": "the disk"}),
                ("/v1/search", web, {"query": "disk full"}),
            )[number % 2]
            for said, headers in (
                (body, {"Idempotency_Key": " ".join(secret().split())}),
                (body, {"User_Agent": " ".join(secret().split())}),
                (body | {secret(): secret()}, {}),
                (body | {"model": secret()}, {}),
                (body | {"count": secret(), "dimensions": secret()}, {}),
            ):
                taken += (await posted(url, path, bearer, said, **headers)).is_success
        with suppress(CounterpointError):
            await asking.embed(memory, ["the disk"], key=secret(), deadline_s=20)
        await asking.embed(memory, ["the disk"], key=KEPT, deadline_s=20)
    await asking.close()
    assert taken > KINDS
    needles = Needles((*planted, KEPT))
    async with house.superuser() as connection:
        found = await in_database(connection, needles)
    assert found.keys() == {KEPT}, found
    assert not list(needles.within(str(logs).encode()))

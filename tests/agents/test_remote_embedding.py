"""Memory's embedding model outside: by the gateway, on a token of memory's own, from the real LiteLLM to a provider."""

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pytest
from agents.gateway_world import EMBEDDING, Door, World, gateway, vector_of
from memory_service.house import House
from starlette.responses import JSONResponse

from counterpoint.client import Gateway
from counterpoint.guard.policy import policy
from counterpoint.manager.gateway.provider_limits import ProviderLimits
from counterpoint.memory.access.tokens import Tokens
from counterpoint.memory.embedding.files import ModelSettings
from counterpoint.memory.embedding.model import Embedder, EmbeddingModel, TextContext
from counterpoint.memory.embedding.remote import BATCH_CHARS, BATCH_TEXTS, PARALLEL, RemoteEmbedder
from counterpoint.proto.errors import Denied, Permanent

pytestmark = pytest.mark.xdist_group("litellm")  # its import takes seconds
DIMENSIONS = 96


@pytest.fixture
async def client(door: Door, outside: World) -> AsyncIterator[Gateway]:
    """Memory's client of a gateway."""
    outside.dimensions = DIMENSIONS
    async with gateway(door, ProviderLimits(embedding_models=(EMBEDDING,))) as (url, _):
        made = Gateway(url, embedding_model=EMBEDDING)
        yield made
        await made.close()


@pytest.fixture
def embedder(client: Gateway, house: House) -> RemoteEmbedder:
    """The model outside."""
    return RemoteEmbedder(client, Tokens(policy(), house.keyring), DIMENSIONS)


def models(remote: RemoteEmbedder) -> tuple[EmbeddingModel, ...]:
    """Both are one to the type checker."""
    return Embedder(ModelSettings().model_cache_dir), remote


def test_one_model_in_the_house_and_one_outside(embedder: RemoteEmbedder) -> None:
    ours, remote = models(embedder)
    assert (ours.model_id, ours.dimensions) == ("minilm-l6-v2-int8", 384)
    assert (remote.model_id, remote.dimensions) == (f"{EMBEDDING}@{DIMENSIONS}", DIMENSIONS)


async def test_vectors_are_of_length_one_and_in_the_order_of_their_texts(
    embedder: RemoteEmbedder, outside: World, house: House, project: str
) -> None:
    texts = ["disk full", "", "net down", "disk full", "half \ud83d of a pair"]
    vectors = await embedder.embed(texts, TextContext(project, job="j-1"))
    assert vectors.shape == (5, DIMENSIONS)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert np.array_equal(vectors[0], vectors[3])
    wanted = np.asarray(vector_of("net down", DIMENSIONS), np.float32)
    assert np.allclose(vectors[2], wanted / np.linalg.norm(wanted), atol=1e-6)
    assert len(outside.seen[0]["input"]) == 4
    assert outside.seen[0]["dimensions"] == DIMENSIONS
    spend = await house.body(project, "spend", "job:j-1")
    assert spend is not None
    assert spend["calls"] == 1
    assert float(spend["spent_usd"]) > 0


async def test_no_texts_give_no_vectors_and_no_call(embedder: RemoteEmbedder, outside: World, project: str) -> None:
    assert (await embedder.embed([], TextContext(project))).shape == (0, DIMENSIONS)
    assert not outside.seen


async def test_many_texts_go_in_batches_a_few_at_a_time(embedder: RemoteEmbedder, outside: World, project: str) -> None:
    texts = [f"{n} {'x' * 3000}" for n in range(300)]
    outside.hold.clear()
    outside.expected = PARALLEL
    embedding = asyncio.create_task(embedder.embed(texts, TextContext(project)))
    await outside.arrived.wait()
    assert len(outside.seen) == PARALLEL
    outside.hold.set()
    vectors = await embedding
    assert vectors.shape == (300, DIMENSIONS)
    assert all(len(batch["input"]) <= BATCH_TEXTS for batch in outside.seen)
    assert all(sum(map(len, batch["input"])) <= BATCH_CHARS for batch in outside.seen)
    assert sum(len(batch["input"]) for batch in outside.seen) == 300


async def test_vectors_of_another_length_are_an_error_that_says_so(
    embedder: RemoteEmbedder, outside: World, project: str
) -> None:
    outside.dimensions = DIMENSIONS // 2
    with pytest.raises(Permanent, match="returns vectors of 48 dimensions, not 96"):
        await embedder.embed(["disk full"], TextContext(project))


async def test_a_zero_vector_is_refused(embedder: RemoteEmbedder, outside: World, project: str) -> None:
    data = [{"object": "embedding", "index": 0, "embedding": [0.0] * DIMENSIONS}]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    outside.answers = [JSONResponse({"object": "list", "data": data, "model": "m", "usage": usage})]
    with pytest.raises(Permanent, match="embedding_invalid"):
        await embedder.embed(["disk full"], TextContext(project))


async def test_texts_above_the_clearance_of_the_providers_are_not_sent(
    embedder: RemoteEmbedder, outside: World, project: str
) -> None:
    with pytest.raises(Denied, match="label"):
        await embedder.embed(["the salary run"], TextContext(project, label=2))
    assert not outside.seen

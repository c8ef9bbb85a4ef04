"""A house with a model of its user's own in both roles; it changes to the one inside, is killed, and goes back."""

import asyncio
from pathlib import Path

import httpx
import pytest
from flows.own_stack import own_stack
from flows.test_gateway import INSIDE, TEXTS, reembed
from search.local_models import minilm

from counterpoint.local.stack import Stack
from counterpoint.local.state_file import is_free, read_state
from counterpoint.proto.errors import Transient


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_house_embeds_and_orders_by_a_model_of_its_users_own(tmp_path: Path, project: str) -> None:
    model = f"file:{minilm(tmp_path / 'mine')}"
    async with own_stack(COUNTERPOINT_EMBEDDING_MODEL=model, COUNTERPOINT_RERANKER=model) as stack:
        await _both_roles(stack, project, model)


async def _both_roles(stack: Stack, project: str, model: str) -> None:
    headers = {"Authorization": f"Bearer {stack.endpoints.token}"}
    async with httpx.AsyncClient(base_url=stack.endpoints.http, headers=headers, timeout=60) as http:
        for n, text in enumerate(TEXTS):
            body = {"source": f"{n}.md", "text": text, "project": project}
            (await http.post("/v1/documents", json=body)).raise_for_status()

        async def best() -> tuple[str, float]:
            asked = await http.post(
                "/v1/search", json={"text": "is the storage of orders exhausted?", "project": project}
            )
            items = asked.raise_for_status().json()["items"]
            assert [item["score"] for item in items] == sorted((item["score"] for item in items), reverse=True)
            assert all(item["score"] == item["scores"]["rerank"] for item in items)
            return items[0]["source"], items[0]["scores"]["cosine"]

        first = await best()
        assert first[0] == "0.md"
        assert is_free(read_state(stack.data_dir / "state.json").ports["gateway"])
        code, said, _ = await reembed(stack.data_dir)
        own = said["active"]
        assert (code, own.startswith("file-"), said["dimensions"]) == (0, True, 384)
        code, said, _ = await reembed(stack.data_dir, INSIDE, "--switch")
        assert (code, said["active"], said["other"]) == (0, INSIDE, own)
        stack.kill("memory")
        await stack.ready("memory")
        code, said, _ = await reembed(stack.data_dir, model, "--rollback")
        assert (code, said["active"]) == (0, own)
        async with asyncio.timeout(120):
            assert await best() == first
        code, _, why = await reembed(stack.data_dir, "file:/no/such/folder")
        assert (code, "is not a folder" in why) == (1, True)


@pytest.mark.slow
async def test_up_states_the_fault_of_a_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COUNTERPOINT_RERANKER", f"file:{tmp_path}")
    stack = Stack(tmp_path / "data", http_port=0)
    with pytest.raises(Transient, match=r"COUNTERPOINT_RERANKER: .* contains neither model\.onnx"):
        await stack.start()

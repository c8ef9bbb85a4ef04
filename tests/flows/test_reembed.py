"""The whole house changes from a model outside to the one inside, of another length, and back, by the command."""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx
import pytest
from agents.gateway_world import EMBEDDING, World, world

from counterpoint.local.stack import Stack

COMMAND = Path(sys.executable).with_name("counterpoint")
OUTSIDE, INSIDE = f"{EMBEDDING}@256", "minilm-l6-v2-int8"
TEXTS = ("The disk of orders was full.", "The network of billing was down.", "Nobody could log in to the shop.")


async def reembed(folder: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """How the command ends, what it prints, as JSON and as text."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COUNTERPOINT_")}
    process = await asyncio.create_subprocess_exec(
        str(COMMAND), "reembed", *arguments, "--json", "--data-dir", str(folder),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment,
    )  # fmt: skip
    out, _ = await process.communicate()
    return process.returncode or 0, json.loads(out), out.decode()


@pytest.mark.timeout(240)
async def test_the_house_changes_to_a_model_of_another_length_and_back(
    monkeypatch: pytest.MonkeyPatch, project: str
) -> None:
    async with world() as outside:
        outside.dimensions = 256
        monkeypatch.setenv("COUNTERPOINT_EMBEDDING_MODEL", EMBEDDING)
        monkeypatch.setenv("COUNTERPOINT_EMBEDDING_DIMENSIONS", "256")
        monkeypatch.setenv("OPENAI_API_BASE", f"{outside.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-provider")
        with tempfile.TemporaryDirectory(prefix="counterpoint-") as folder:
            stack = Stack(Path(folder) / "data", http_port=0)
            await stack.start()
            try:
                await _changed(stack, outside, project)
            finally:
                await stack.stop()


async def _changed(stack: Stack, outside: World, project: str) -> None:
    headers = {"Authorization": f"Bearer {stack.endpoints.token}"}
    folder = stack.data_dir

    async def found(text: str) -> list[tuple[str, float]]:
        response = await http.post("/v1/search", json={"text": text, "project": project, "vector_weight": 1})
        response.raise_for_status()
        return [(item["source"], item["scores"]["cosine"]) for item in response.json()["items"]]

    async with httpx.AsyncClient(base_url=stack.endpoints.http, headers=headers, timeout=60) as http:
        for n, text in enumerate(TEXTS):
            body = {"source": f"{n}.md", "text": text, "project": project}
            (await http.post("/v1/documents", json=body)).raise_for_status()
        by_words = await found("orders disk")
        code, said, _ = await reembed(folder)
        assert (code, said["active"], said["dimensions"], said["state"]) == (0, OUTSIDE, 256, "none")
        code, _, why = await reembed(folder, "minilm-l7")
        assert (code, "minilm-l6-v2-int8" in why) == (1, True)
        code, _, why = await reembed(folder, "openai/nobody-knows@64")
        assert (code, "model" in why) == (1, True)
        code, said, _ = await reembed(folder, INSIDE, "--switch")
        assert (code, said["active"], said["state"], said["vectors"]) == (0, INSIDE, "kept", 3)
        told = len(outside.seen)
        assert (await found("is the storage exhausted?"))[0][0] == "0.md"
        assert len(outside.seen) == told
        body = {"source": "3.md", "text": "The disk of billing was slow.", "project": project}
        (await http.post("/v1/documents", json=body)).raise_for_status()
        stack.kill("memory")
        await stack.ready("memory")
        code, said, _ = await reembed(folder, "--rollback")
        assert (code, said["active"], said["state"], said["vectors"]) == (0, OUTSIDE, "ready", 4)
        assert [hit for hit in await found("orders disk") if hit[0] != "3.md"] == by_words
        code, said, _ = await reembed(folder, "--drop")
        assert (code, said["active"], said["state"]) == (0, OUTSIDE, "none")
        assert (await reembed(folder, "--rollback"))[0] == 1

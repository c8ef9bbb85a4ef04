"""A house whose models are outside: documents embedded and read by them, and a change to the model inside and back."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from agents.gateway_world import EMBEDDING, PRICED, World, world
from flows.own_stack import own_stack
from flows.providers import has_litellm, holds

from counterpoint.local.endpoints import Endpoints
from counterpoint.local.stack import Stack
from counterpoint.memory.query.executor import SLOTS
from counterpoint.proto.tasks import TaskCompleted

pytestmark = pytest.mark.timeout(240)
COMMAND = Path(sys.executable).with_name("counterpoint")
OUTSIDE, INSIDE = f"{EMBEDDING}@256", "minilm-l6-v2-int8"
TEXTS = ("The disk of orders was full.", "The network of billing was down.", "Nobody could log in to the shop.")
KEY = "sk-of-the-provider"
OWNS = {"subject": "quay team", "relation": "owns", "object": "billing", "span": "The quay team owns billing."}


@pytest_asyncio.fixture(scope="module")
async def outside() -> AsyncIterator[World]:
    """The world in which the models are."""
    async with world() as made:
        made.text = json.dumps({"relations": [OWNS]})
        made.dimensions = 256
        yield made


@pytest_asyncio.fixture(scope="module")
async def gateway_stack(outside: World) -> AsyncIterator[Stack]:
    """One house for both tests: LiteLLM, which its manager loads, takes seconds."""
    async with own_stack(
        COUNTERPOINT_MODEL=PRICED,
        COUNTERPOINT_EMBEDDING_MODEL=EMBEDDING,
        COUNTERPOINT_EMBEDDING_DIMENSIONS="256",
        OPENAI_API_BASE=f"{outside.url}/v1",
        OPENAI_API_KEY=KEY,
    ) as started:
        yield started


async def reembed(folder: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Exit code of the command, its JSON, and its text."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COUNTERPOINT_")}
    process = await asyncio.create_subprocess_exec(
        str(COMMAND), "reembed", *arguments, "--json", "--data-dir", str(folder),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment,
    )  # fmt: skip
    out, _ = await process.communicate()
    return process.returncode or 0, json.loads(out), out.decode()


def _embeddings(outside: World) -> int:
    """Number of calls of the external embedding model."""
    return sum("input" in body for body in outside.seen)


@pytest.mark.slow
async def test_the_house_changes_to_a_model_of_another_length_and_back(
    gateway_stack: Stack, outside: World, project: str
) -> None:
    headers = {"Authorization": f"Bearer {gateway_stack.endpoints.token}"}
    folder = gateway_stack.data_dir

    async def found(text: str) -> list[tuple[str, float]]:
        response = await http.post("/v1/search", json={"text": text, "project": project, "vector_weight": 1})
        response.raise_for_status()
        return [(item["source"], item["scores"]["cosine"]) for item in response.json()["items"]]

    async with httpx.AsyncClient(base_url=gateway_stack.endpoints.http, headers=headers, timeout=60) as http:
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
        embedded = _embeddings(outside)
        assert (await found("is the storage exhausted?"))[0][0] == "0.md"
        assert _embeddings(outside) == embedded
        body = {"source": "3.md", "text": "The disk of billing was slow.", "project": project}
        (await http.post("/v1/documents", json=body)).raise_for_status()
        gateway_stack.kill("memory")
        await gateway_stack.ready("memory")
        code, said, _ = await reembed(folder, "--rollback")
        assert (code, said["active"], said["state"], said["vectors"]) == (0, OUTSIDE, "ready", 4)
        assert [hit for hit in await found("orders disk") if hit[0] != "3.md"] == by_words
        code, said, _ = await reembed(folder, "--drop")
        assert (code, said["active"], said["state"]) == (0, OUTSIDE, "none")
        assert (await reembed(folder, "--rollback"))[0] == 1


async def test_documents_are_embedded_and_found_and_read_for_relations_by_models_outside(
    gateway_stack: Stack, outside: World, project: str
) -> None:
    await _embedded(gateway_stack.endpoints, project)
    await _related(gateway_stack.endpoints, project)
    told = [text for body in outside.seen for text in body.get("input", ())]
    assert "The disk of orders was full." in told
    assert "orders disk" in told
    await _accounted(gateway_stack.endpoints, project)


async def _embedded(endpoints: Endpoints, project: str) -> None:
    headers = {"Authorization": f"Bearer {endpoints.token}"}
    async with httpx.AsyncClient(base_url=endpoints.http, headers=headers, timeout=120) as http:
        for n, text in enumerate(("The disk of orders was full.", "The network of billing was down.")):
            body = {"source": f"{n}.md", "text": text, "project": project}
            (became,) = (await http.post("/v1/documents", json=body)).json()["documents"]
            assert (became["status"], became["embedded"]) == ("added", 1)
        again = {"source": "2.md", "text": "The disk of orders was full.", "project": project}
        (became,) = (await http.post("/v1/documents", json=again)).json()["documents"]
        assert became["embedded"] == 0
        found = (await http.post("/v1/search", json={"text": "orders disk", "project": project})).json()
        assert found["items"][0]["source"] in ("0.md", "2.md")
        assert found["items"][0]["scores"]["cosine"] > found["items"][-1]["scores"]["cosine"]
        many = [{"text": f"orders disk {n}", "project": project} for n in range(3 * SLOTS)]
        answers = await asyncio.gather(*(http.post("/v1/search", json=each) for each in many))
        assert {answer.status_code for answer in answers} == {200}
        metrics = (await http.get(f"{endpoints.services['manager'].health}/metrics")).text
    spent = re.search(rf'counterpoint_llm_cost_usd_total{{model="{EMBEDDING}",project="{project}"}} (\S+)', metrics)
    assert spent is not None
    assert float(spent[1]) > 0
    holders = {name for name, service in endpoints.services.items() if holds(service.pid, KEY)}
    assert holders == {"manager"}
    assert [name for name, service in endpoints.services.items() if has_litellm(service.pid)] == ["manager"]


async def _accounted(endpoints: Endpoints, project: str) -> None:
    headers = {"Authorization": f"Bearer {endpoints.token}"}
    async with httpx.AsyncClient(base_url=endpoints.http, headers=headers, timeout=120) as http:
        body = {"kind": "question", "description": "Was the disk of orders full?", "project": project}
        task_id = (await http.post("/v1/tasks", json=body)).raise_for_status().json()["task_id"]
        completed = await _completed(http, task_id, project)
    assert Decimal(completed["cost_usd"]) > 0
    assert completed["tokens"] > 0
    assert completed["unpriced_calls"] == 0
    sums = {by: await _costs(endpoints, project, by) for by in ("task", "agent", "model")}
    assert sums["task"][task_id] == Decimal(completed["cost_usd"])
    assert sums["agent"]["developer"] == Decimal(completed["cost_usd"])
    assert sums["agent"].keys() <= {"developer", "memory"}
    assert {sum(each.values()) for each in sums.values()} == {sum(sums["model"].values())}
    assert EMBEDDING in sums["model"]


async def _costs(endpoints: Endpoints, project: str, by: str) -> dict[str, Decimal]:
    """The cost of each group, by the command."""
    process = await asyncio.create_subprocess_exec(
        str(COMMAND), "costs", "--by", by, "--json", "--project", project, "--url", endpoints.http,
        "--token", endpoints.token, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()
    return {line["key"]: Decimal(line["usd"]) for line in json.loads(out)["lines"]}


async def _completed(http: httpx.AsyncClient, task_id: str, project: str) -> dict[str, Any]:
    """The data of the event that ends the task."""
    async with http.stream("GET", f"/v1/tasks/{task_id}/events", params={"project": project}) as stream:
        async for line in stream.aiter_lines():
            event = json.loads(line.removeprefix("data:")) if line.startswith("data:") else {}
            if event.get("type") == TaskCompleted.TYPE:
                data: dict[str, Any] = event["data"]
                return data
    raise AssertionError("the stream ended before the task")


async def _related(endpoints: Endpoints, project: str) -> None:
    headers = {"Authorization": f"Bearer {endpoints.token}"}
    async with httpx.AsyncClient(base_url=endpoints.http, headers=headers, timeout=120) as http:
        body = {"source": "teams.md", "text": OWNS["span"], "project": project}
        (await http.post("/v1/documents", json=body)).raise_for_status()
        stated = None
        while not stated:
            await asyncio.sleep(0.1)
            answer = await http.get("/v1/entities/known", params={"name": "Billing", "project": project})
            stated = answer.json()["stated"]
    (owns,) = stated
    assert (owns["source"]["name"], owns["kind"], owns["target"]["name"]) == ("quay team", "owns", "billing")
    said = owns["provenance"]
    assert (said["by"], said["model"], said["source"], said["quote"]) == ("model", PRICED, "teams.md", OWNS["span"])

"""A house that embeds by a model outside; and one that does not, which knows nothing of it."""

import asyncio
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx
import pytest
from agents.gateway_world import EMBEDDING, PRICED, world

from counterpoint.local.endpoints import Endpoints
from counterpoint.local.service import COMMANDS
from counterpoint.local.stack import Stack
from counterpoint.local.state_file import is_free, read_state
from counterpoint.memory.query.executor import SLOTS

KEY = "sk-of-the-provider"
OWNS = {"subject": "quay team", "relation": "owns", "object": "billing", "span": "The quay team owns billing."}


def has_litellm(pid: int) -> bool:
    """Whether a process has loaded what LiteLLM brings along."""
    return "fastuuid" in Path(f"/proc/{pid}/maps").read_text()


def environment(pid: int) -> str:
    """What a process was given."""
    return Path(f"/proc/{pid}/environ").read_text()


@pytest.mark.timeout(240)
async def test_documents_are_embedded_and_found_and_read_for_relations_by_models_outside(
    monkeypatch: pytest.MonkeyPatch, project: str
) -> None:
    async with world() as outside:
        outside.text = json.dumps({"relations": [OWNS]})
        monkeypatch.setenv("COUNTERPOINT_MODEL", PRICED)
        monkeypatch.setenv("COUNTERPOINT_EMBEDDING_MODEL", EMBEDDING)
        monkeypatch.setenv("OPENAI_API_BASE", f"{outside.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        with tempfile.TemporaryDirectory(prefix="counterpoint-") as folder:
            started = Stack(Path(folder) / "data", http_port=0)
            await started.start()
            try:
                await _embedded(started.endpoints, project)
                await _related(started.endpoints, project)
            finally:
                await started.stop()
        told = [text for body in outside.seen for text in body.get("input", ())]
        assert "The disk of orders was full." in told
        assert "orders disk" in told


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
    holders = {name for name, service in endpoints.services.items() if KEY in environment(service.pid)}
    assert holders == {"manager"}
    assert [name for name, service in endpoints.services.items() if has_litellm(service.pid)] == ["manager"]


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


@pytest.mark.timeout(240)
async def test_a_developer_killed_during_a_call_finds_its_outcome_and_asks_nobody_again(
    monkeypatch: pytest.MonkeyPatch, project: str
) -> None:
    async with world() as outside:
        monkeypatch.setenv("COUNTERPOINT_MODEL", PRICED)
        monkeypatch.setenv("OPENAI_API_BASE", f"{outside.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        outside.hold.clear()
        developer = (sys.executable, str(Path(__file__).with_name("asking_developer.py")))
        with tempfile.TemporaryDirectory(prefix="counterpoint-") as folder:
            started = Stack(Path(folder) / "data", http_port=0, commands={**COMMANDS, "developer": developer})
            await started.start()
            try:
                endpoints = started.endpoints
                headers = {"Authorization": f"Bearer {endpoints.token}"}
                async with httpx.AsyncClient(base_url=endpoints.http, headers=headers, timeout=120) as http:
                    task = {"kind": "question", "description": "Why did orders fail?", "project": project,
                            "budget": {"usd": "0.01"}}  # fmt: skip
                    (await http.post("/v1/tasks", json=task | {"task_id": "t-1"})).raise_for_status()
                    async with asyncio.timeout(60):
                        await outside.arrived.wait()
                    started.kill("developer")
                    outside.hold.set()
                    await started.ready("developer")
                    waiting = {"project": project, "wait": "60"}
                    shown = (await http.get("/v1/tasks/t-1", params=waiting)).json()
                    assert shown["waiting_for"] == "documents"
                    metrics = (await http.get(f"{endpoints.services['manager'].health}/metrics")).text
            finally:
                await started.stop()
        assert len(outside.seen) == 1
        assert f'counterpoint_llm_calls_total{{model="{PRICED}",outcome="settled",project="{project}"}} 1.0' in metrics


async def test_where_nothing_is_configured_there_is_no_gateway(stack: Stack) -> None:
    assert is_free(read_state(stack.data_dir / "state.json").ports["gateway"])
    manager = stack.endpoints.services["manager"].pid
    assert not has_litellm(manager)
    assert "API_KEY" not in environment(manager)


@pytest.mark.parametrize("module", ["main", "gateway.api"])
def test_litellm_is_not_imported_before_a_model_is_called(module: str) -> None:
    look = f"import sys, counterpoint.manager.{module}; sys.exit('litellm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", look], check=False).returncode == 0

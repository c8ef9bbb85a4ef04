"""A developer is killed at every node of a question and during a call of its model: each has one effect."""

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from agents.gateway_world import PRICED, World, world
from flows.questions import ask, line, settled, told

from counterpoint.bus import BusSettings, Service
from counterpoint.cli.address import Address
from counterpoint.cli.api import ApiClient
from counterpoint.cli.replay.processes import ReplayProcesses
from counterpoint.cli.replay.task import TaskReport, replay_task
from counterpoint.local.credentials import load_credentials
from counterpoint.local.service import COMMANDS, NATS_USERS
from counterpoint.local.stack import Stack
from counterpoint.proto.memory import LogAfter

KNOWLEDGE = Path(__file__).parents[2] / "examples" / "knowledge"
QUESTION = "Who owns finance_daily and where are they reached?"
SAID = "finance_daily is owned by team-finance, reached at #finance-data [1][2][3][4][5]."
NODES = ("route", "retrieve", "evaluate", "generate", "validate")
PLACES = [f"{when}-{node}" for node in (*NODES, "end") for when in ("before", "after")]


class Dying:
    """A house whose developer can be told where to die, and the world in which its model is."""

    def __init__(self, stack: Stack, http: httpx.AsyncClient, orders: Path, outside: World, router: Service) -> None:
        self.stack = stack
        self.router = router
        self.http = http
        self.orders = orders
        self.outside = outside


@pytest_asyncio.fixture(scope="module")
async def dying() -> AsyncIterator[Dying]:
    """One house for all the places."""
    with pytest.MonkeyPatch.context() as monkeypatch, tempfile.TemporaryDirectory(prefix="counterpoint-") as folder:
        async with world() as outside:
            outside.text = SAID
            monkeypatch.setenv("COUNTERPOINT_MODEL", PRICED)
            monkeypatch.setenv("COUNTERPOINT_RELATIONS_TOKENS", "0")
            monkeypatch.setenv("COUNTERPOINT_ANSWER_DEADLINE_S", "90")
            monkeypatch.setenv("OPENAI_API_BASE", f"{outside.url}/v1")
            monkeypatch.setenv("OPENAI_API_KEY", "sk-nobody")
            orders = Path(folder) / "orders"
            orders.mkdir()
            developer = (sys.executable, str(Path(__file__).with_name("dying_developer.py")), str(orders))
            stack = Stack(Path(folder) / "data", http_port=0, commands={**COMMANDS, "developer": developer})
            await stack.start()
            try:
                headers = {"Authorization": f"Bearer {stack.endpoints.token}"}
                router = Service("router", BusSettings(
                    nats_url=stack.endpoints.nats, nats_user="router",
                    nats_password=load_credentials(Path(folder) / "data" / "secrets.json", NATS_USERS).nats["router"],
                ))  # fmt: skip
                await router.connection.open()
                async with httpx.AsyncClient(base_url=stack.endpoints.http, headers=headers, timeout=60) as http:
                    await told(http, "killed", {path.name: path.read_text() for path in KNOWLEDGE.rglob("*.md")})
                    yield Dying(stack, http, orders, outside, router)
                await router.connection.close()
            finally:
                await stack.stop()


@pytest.mark.timeout(120)
@pytest.mark.slow
@pytest.mark.parametrize("place", ["nowhere", *PLACES])
async def test_a_developer_killed_at_a_node_has_one_effect(dying: Dying, place: str) -> None:
    order, before = dying.orders / place, len(dying.outside.seen)
    if place != "nowhere":
        order.touch()
    task = await ask(dying.http, "killed", QUESTION)
    assert not order.exists() or place == "nowhere"
    assert (task["state"], task["resolution"]) == ("completed", "answered")
    assert task["result"].startswith("finance_daily is owned by team-finance, reached at #finance-data."), task
    actions, decisions = await line(dying.http, "killed", task["task_id"])
    assert actions == ["route", "search", "assess", "generate", "validate", "answer"]
    assert decisions == ["route", "retrieve", "retrieval_grade", "generate", "validate", "answer"]
    assert len(dying.outside.seen) - before == 2, "one call to say where to look, and one to word the answer"
    assert (await _sent(dying, task["task_id"]))["worked"] == 1
    steps = {step.step: step for step in (await _replayed(dying, task["task_id"])).steps if step.service == "developer"}
    assert steps["done"].verdict == "same", [(s.step, s.verdict, s.why, s.difference) for s in steps.values()]
    others = [step for step in steps.values() if step.verdict != "same"]
    assert not others or place.startswith(("before-", "after-"))
    assert all(step.why == ("an earlier delivery made it",) for step in others), others


async def _replayed(dying: Dying, task_id: str) -> TaskReport:
    endpoints = dying.stack.endpoints

    def replayed() -> TaskReport:
        with ApiClient(Address(endpoints.http, endpoints.token)) as api, ReplayProcesses() as processes:
            return replay_task(api, task_id, "killed", processes)

    return await asyncio.to_thread(replayed)


async def _sent(dying: Dying, task_id: str) -> Counter[str]:
    """Count of each message about a task in the record."""
    found, after = Counter[str](), 0
    while True:
        (page,) = await dying.router.memory("killed", None).query(LogAfter(after=after, kinds=("tasks",), limit=1000))
        if not page.items:
            return found
        found.update(each.body["subject"].rpartition(".")[2] for each in page.items if each.body["task_id"] == task_id)
        after = page.items[-1].seq


async def test_a_developer_killed_during_a_call_finds_its_outcome_and_asks_nobody_again(dying: Dying) -> None:
    calls, before = await _settled_calls(dying), len(dying.outside.seen)
    dying.outside.arrived.clear()
    dying.outside.hold.clear()
    body = {"kind": "question", "description": QUESTION, "project": "killed"}
    task_id = (await dying.http.post("/v1/tasks", json=body)).raise_for_status().json()["task_id"]
    async with asyncio.timeout(60):
        await dying.outside.arrived.wait()
    dying.stack.kill("developer")
    dying.outside.hold.set()
    await dying.stack.ready("developer")
    task = await settled(dying.http, "killed", task_id)
    assert (task["state"], task["resolution"]) == ("completed", "answered")
    assert len(dying.outside.seen) - before == await _settled_calls(dying) - calls == 2


async def _settled_calls(dying: Dying) -> float:
    metrics = (await dying.http.get(f"{dying.stack.endpoints.services['manager'].health}/metrics")).text
    name = f'counterpoint_llm_calls_total{{model="{PRICED}",outcome="settled",project="killed"}} '
    return sum(float(each.removeprefix(name)) for each in metrics.splitlines() if each.startswith(name))

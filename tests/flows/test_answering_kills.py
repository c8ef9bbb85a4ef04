"""A developer is killed at every node of a question and during a call of its model: each has one effect."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from agents.gateway_world import PRICED
from flows.mortal_house import MortalHouse
from flows.questions import ask, line, settled

from counterpoint.bus import BusSettings, Service
from counterpoint.local.credentials import load_credentials
from counterpoint.local.service import NATS_USERS
from counterpoint.proto.memory import LogAfter

pytestmark = pytest.mark.xdist_group("mortal house")
KNOWLEDGE = Path(__file__).parents[2] / "examples" / "knowledge"
QUESTION = "Who owns finance_daily and where are they reached?"
SAID = "finance_daily is owned by team-finance, reached at #finance-data [1][2][3][4][5]."
NODES = ("route", "retrieve", "evaluate", "generate", "validate")
PLACES = [f"{when}-{node}" for node in (*NODES, "end") for when in ("before", "after")]


@pytest_asyncio.fixture(scope="module")
async def model_house(whole_mortal_house: MortalHouse) -> MortalHouse:
    """One house for all the places."""
    knowledge = {path.name: path.read_text() for path in KNOWLEDGE.rglob("*.md")}
    return await whole_mortal_house.with_project("killed", knowledge, SAID)


@pytest_asyncio.fixture(scope="module")
async def router(model_house: MortalHouse) -> AsyncIterator[Service]:
    """The router's connection to the bus."""
    password = load_credentials(model_house.data_dir / "secrets.json", NATS_USERS).nats["router"]
    url = model_house.stack.endpoints.nats
    service = Service("router", BusSettings(nats_url=url, nats_user="router", nats_password=password))
    await service.connection.open()
    yield service
    await service.connection.close()


@pytest.mark.timeout(120)
@pytest.mark.slow
@pytest.mark.parametrize("place", ["nowhere", *PLACES])
async def test_a_developer_killed_at_a_node_has_one_effect(
    model_house: MortalHouse, router: Service, place: str
) -> None:
    order, before = model_house.orders / place, len(model_house.outside.seen)
    if place != "nowhere":
        order.touch()
    task = await ask(model_house.http, "killed", QUESTION)
    assert not order.exists() or place == "nowhere"
    assert (task["state"], task["resolution"]) == ("completed", "answered")
    assert task["result"].startswith("finance_daily is owned by team-finance, reached at #finance-data."), task
    actions, decisions = await line(model_house.http, "killed", task["task_id"])
    assert actions == ["route", "search", "assess", "generate", "validate", "answer"]
    assert decisions == ["route", "retrieve", "retrieval_grade", "generate", "validate", "answer"]
    assert len(model_house.outside.seen) - before == 2, "one call to say where to look, and one to word the answer"
    assert (await _sent(router, task["task_id"]))["worked"] == 1
    steps = {
        step.step: step for step in (await model_house.replayed(task["task_id"])).steps if step.service == "developer"
    }
    assert steps["done"].verdict == "same", [(s.step, s.verdict, s.why, s.difference) for s in steps.values()]
    others = [step for step in steps.values() if step.verdict != "same"]
    assert not others or place.startswith(("before-", "after-"))
    assert all(step.why == ("an earlier delivery made it",) for step in others), others


async def _sent(router: Service, task_id: str) -> Counter[str]:
    """Count of each message about a task in the record."""
    found, after = Counter[str](), 0
    while True:
        (page,) = await router.memory("killed", None).query(LogAfter(after=after, kinds=("tasks",), limit=1000))
        if not page.items:
            return found
        found.update(each.body["subject"].rpartition(".")[2] for each in page.items if each.body["task_id"] == task_id)
        after = page.items[-1].seq


async def test_a_developer_killed_during_a_call_does_not_repeat_the_call(
    model_house: MortalHouse,
) -> None:
    calls, before = await _settled_calls(model_house), len(model_house.outside.seen)
    model_house.outside.arrived.clear()
    model_house.outside.hold.clear()
    body = {"kind": "question", "description": QUESTION, "project": "killed"}
    task_id = (await model_house.http.post("/v1/tasks", json=body)).raise_for_status().json()["task_id"]
    async with asyncio.timeout(60):
        await model_house.outside.arrived.wait()
    model_house.stack.kill("developer")
    model_house.outside.hold.set()
    await model_house.stack.ready("developer")
    task = await settled(model_house.http, "killed", task_id)
    assert (task["state"], task["resolution"]) == ("completed", "answered")
    assert len(model_house.outside.seen) - before == await _settled_calls(model_house) - calls == 2


async def _settled_calls(model_house: MortalHouse) -> float:
    metrics = (await model_house.http.get(f"{model_house.stack.endpoints.services['manager'].health}/metrics")).text
    name = f'counterpoint_llm_calls_total{{model="{PRICED}",outcome="settled",project="killed"}} '
    return sum(float(each.removeprefix(name)) for each in metrics.splitlines() if each.startswith(name))

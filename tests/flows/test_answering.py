"""Questions through the whole house: killed at every node, following on one another, said on the line and counted."""

import re
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from agents.gateway_world import PRICED, World, world

from counterpoint.bus import BusSettings, Service
from counterpoint.local.credentials import load_credentials
from counterpoint.local.service import COMMANDS, NATS_USERS
from counterpoint.local.stack import Stack
from counterpoint.proto.memory import LogAfter

KNOWLEDGE = Path(__file__).parents[2] / "examples" / "knowledge"
QUESTION = "Who owns finance_daily and where are they reached?"
SAID = "finance_daily is owned by team-finance, reached at #finance-data [1][2][3][4][5]."
QUICK = ("nowhere", "before-generate", "after-generate", "after-end")
NODES = ("route", "retrieve", "evaluate", "generate", "validate")
PLACES = [f"{when}-{node}" for node in (*NODES, "end") for when in ("before", "after")]
JOBS = {
    "ownership.md": "# Ownership\n\nfinance_daily is owned by the finance team, which is reached in #finance-data.\n",
    "schedule.md": "# Schedule of finance_daily\n\nfinance_daily starts on weekdays at 06:30.\n",
    "orders.md": "# orders_ingest\n\nWhen does it run? orders_ingest runs every hour, at ten past.\n",
    "backups.md": "# Backups\n\nThe backups run at night; when they do not run, call the desk.\n",
    "reports.md": "# Reports\n\nReports of the warehouse run on Sundays, when nobody works.\n",
    "kitchen.md": "# Kitchen\n\nThe coffee machine is descaled on the first Monday of the month.\n",
    "garden.md": "# Garden\n\nPlants are watered by whoever opens the office.\n",
    "bicycles.md": "# Bicycles\n\nThe pump hangs beside the door of the cellar.\n",
}


async def ask(http: httpx.AsyncClient, project: str, text: str, **more: Any) -> dict[str, Any]:
    """A question, to where it ends or waits."""
    body = {"kind": "question", "description": text, "project": project, **more}
    task_id = (await http.post("/v1/tasks", json=body)).raise_for_status().json()["task_id"]
    return await settled(http, project, task_id)


async def settled(http: httpx.AsyncClient, project: str, task_id: str) -> dict[str, Any]:
    """A task when it has ended or waits."""
    while True:
        shown = await http.get(f"/v1/tasks/{task_id}", params={"project": project, "wait": "30"})
        task: dict[str, Any] = shown.raise_for_status().json()
        if task["state"] not in ("submitted", "working"):
            return task


async def told(http: httpx.AsyncClient, project: str, documents: dict[str, str]) -> None:
    """Put documents into memory."""
    body = {"documents": [{"source": name, "text": text} for name, text in documents.items()], "project": project}
    (await http.post("/v1/documents", json=body)).raise_for_status()


async def shown(http: httpx.AsyncClient, project: str, task_id: str) -> tuple[list[Any], list[Any]]:
    """What the developer did and decided, in order."""
    said = (await http.get(f"/v1/tasks/{task_id}/line", params={"project": project})).raise_for_status().json()
    actions, decisions = (
        [each for each in said[name] if each["agent"] == "developer"] for name in ("items", "decisions")
    )
    return actions, decisions


async def line(http: httpx.AsyncClient, project: str, task_id: str) -> tuple[list[str], list[str]]:
    """Of what sort that was."""
    actions, decisions = await shown(http, project, task_id)
    return [each["kind"] for each in actions], [each["decision_type"] for each in decisions]


class Dying:
    """A house whose developer can be told where to die, and the world in which its model is."""

    def __init__(self, stack: Stack, http: httpx.AsyncClient, orders: Path, outside: World, router: Service) -> None:
        self.stack = stack
        self.router = router
        self.http = http
        self.orders = orders
        self.outside = outside


@pytest_asyncio.fixture(scope="module")
async def dying(stack: Stack) -> AsyncIterator[Dying]:
    """One house for all the places; the one without a model is there before the environment names one."""
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
@pytest.mark.parametrize(
    "place", [pytest.param(place, marks=() if place in QUICK else pytest.mark.slow) for place in ("nowhere", *PLACES)]
)
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


async def _sent(dying: Dying, task_id: str) -> Counter[str]:
    """How often each message about a task is in the record."""
    found, after = Counter[str](), 0
    while True:
        (page,) = await dying.router.memory("killed", None).query(LogAfter(after=after, kinds=("tasks",), limit=1000))
        if not page.items:
            return found
        found.update(each.body["subject"].rpartition(".")[2] for each in page.items if each.body["task_id"] == task_id)
        after = page.items[-1].seq


async def test_a_question_that_follows_on_finds_what_alone_it_does_not(
    http: httpx.AsyncClient, project: str, stack: Stack
) -> None:
    await told(http, project, JOBS)
    follow = "And when does it run?"
    alone = await ask(http, project, follow)
    assert "06:30" not in alone.get("result", "")
    session = f"s-{project}"
    first = await ask(http, project, "Who owns finance_daily?", session_id=session)
    assert "finance team" in first["result"]
    then = await ask(http, project, follow, session_id=session)
    assert then["state"] == "completed", then
    assert "06:30" in then["result"]
    actions, _ = await shown(http, project, then["task_id"])
    assert "follow-up question: Who owns finance_daily?" in actions[0]["reasoning"]


async def test_what_each_node_decided_is_on_the_stream_and_on_the_line_in_order(
    http: httpx.AsyncClient, project: str, stack: Stack
) -> None:
    await told(http, project, JOBS)
    address = "ann@" + "example.com"
    task = await ask(http, project, f"Hello team! Could somebody tell {address} who owns finance_daily?")
    actions, decisions = await shown(http, project, task["task_id"])
    assert [each["kind"] for each in actions][:3] == ["route", "search", "assess"]
    assert [each["decision_id"] for each in decisions] == [each["decision_id"] for each in actions]
    assert [each["parent_decision_id"] for each in decisions[1:]] == [each["decision_id"] for each in decisions[:-1]]
    assert address not in f"{task}{actions}{decisions}", "what the write filter takes out is in no step"
    metrics = (await http.get(f"{stack.endpoints.services['developer'].health}/metrics")).text
    counted = re.findall(r"^(counterpoint_rag_\w+)\{[^}]*\} ([1-9]\S*)$", metrics, re.MULTILINE)
    assert {"counterpoint_rag_routes_total", "counterpoint_rag_endings_total"} <= {name for name, _ in counted}

"""A question on which a model and the web worked is replayed from the recorded replies, and nothing is called."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from agents.gateway_world import PRICED, World, world
from flows.own_stack import own_stack
from flows.replayed_tasks import ChangedApi, Tasks
from openai import AsyncOpenAI, AuthenticationError

from counterpoint.cli.replay.processes import ReplayProcesses
from counterpoint.cli.replay.task import TaskReport, replay_task

pytestmark = pytest.mark.timeout(240)
ANSWER = "Orders are kept for ten years. [1]"
PAGE = {"title": "Orders", "url": "https://example.com/orders", "content": "Orders are kept."}


@pytest_asyncio.fixture(scope="module")
async def outside() -> AsyncIterator[World]:
    """The world in which the model and the search engine are."""
    async with world() as made:
        made.text, made.pages = ANSWER, [PAGE]
        yield made


@pytest_asyncio.fixture(scope="module")
async def tasks(outside: World) -> AsyncIterator[Tasks]:
    """A project on a stack with a model and a search engine."""
    async with own_stack(
        COUNTERPOINT_MODEL=PRICED,
        COUNTERPOINT_SEARCH_URL=outside.url,
        OPENAI_API_BASE=f"{outside.url}/v1",
        OPENAI_API_KEY="sk-of-the-provider",
    ) as stack:
        headers = {"Authorization": f"Bearer {stack.endpoints.token}"}
        async with httpx.AsyncClient(base_url=stack.endpoints.http, headers=headers, timeout=60) as http:
            yield Tasks(stack, http, "orders")


def verdicts(report: TaskReport) -> dict[str, str]:
    """Verdicts of the developer's steps."""
    return {step.step: step.verdict for step in report.steps if step.service == "developer"}


async def test_the_recorded_replies_of_a_model_and_of_the_web_lead_to_the_same_steps(
    tasks: Tasks, outside: World
) -> None:
    document = {"source": "orders.md", "text": "# Orders\n\nOrders are kept for ten years in the archive."}
    await tasks.post("/v1/documents", document)
    question = "For how many years are orders kept in the archive online?"
    # The first call waits until the gateway has loaded its client of models, perhaps too long.
    await tasks.submit("first", "question", question)
    answered = await tasks.submit("by-model", "question", question)
    assert answered["state"] == "completed", answered
    assert "ten years" in answered["result"]
    called = len(outside.seen)
    page: dict[str, Any] = await tasks.post("/v1/tasks/by-model/replay", {}, limit=200)
    with ReplayProcesses() as processes:

        def replayed(find: str, replace: str) -> TaskReport:
            assert find in json.dumps(page, ensure_ascii=False)
            changed = ChangedApi(page, find, replace)
            return replay_task(changed, "by-model", None, processes)  # type: ignore[arg-type]

        same = replayed(ANSWER, ANSWER)
        assert same.verdict == "same", [
            (step.service, step.step, step.verdict, step.why, step.difference) for step in same.steps
        ]
        assert set(verdicts(same).values()) == {"same"}
        assert len(verdicts(same)) > 3
        assert same.contexts == len(same.steps)
        other = verdicts(replayed(f'"text": "{ANSWER}"', '"text": "NO ANSWER"'))
        assert [verdict for verdict in other.values() if verdict != "same"][:2] == ["different", "follows"]
        lost = replayed('"response": {"text"', '"lost": {"text"')
        assert set(verdicts(lost).values()) == {"not replayed"}
        late = replayed('"settled_at": "20', '"settled_at": "29')
        assert set(verdicts(late).values()) == {"not replayed"}
        assert any("has no reply" in why for step in lost.steps for why in step.why)
    assert len(outside.seen) == called


async def test_an_editor_calls_models_on_the_budget_of_a_task_whose_replay_is_the_same(
    tasks: Tasks, outside: World
) -> None:
    submitted = await tasks.run(
        "submit", "troubleshoot", "nightly_export cannot log in", "--budget", "0.5", "--wait", "--json"
    )
    task_id = json.loads(submitted.stdout)["task_id"]
    shown = await tasks.run("model", "token", task_id, "--minutes", "5")
    assert shown.exit_code == 0, shown.output
    exported = dict(line.removeprefix("export ").split("=", 1) for line in shown.stdout.splitlines())
    assert exported["OPENAI_BASE_URL"] == exported["OPENAI_API_BASE"]
    async with AsyncOpenAI(base_url=exported["OPENAI_BASE_URL"], api_key=exported["OPENAI_API_KEY"]) as client:
        asked: Any = [{"role": "user", "content": "Write the fix."}]
        made = await client.chat.completions.create(model=PRICED, messages=asked, max_tokens=50)
        assert made.choices[0].message.content == ANSWER
        revoked = await tasks.run("revoke", exported["OPENAI_API_KEY"], "--reason", "the work is done")
        assert revoked.exit_code == 0, revoked.output
        with pytest.raises(AuthenticationError, match="revoked"):
            await client.chat.completions.create(model=PRICED, messages=asked, max_tokens=50)
    costs = json.loads((await tasks.run("costs", "--by", "agent", "--json")).stdout)
    assert {each["key"]: each["calls"] for each in costs["lines"]}["administrator"] == 1
    await tasks.post(f"/v1/tasks/{task_id}/cancel", {"reason": "the editor fixed it"})
    await tasks.until(task_id, "cancelled")
    refused = await tasks.run("model", "token", task_id)
    assert refused.exit_code == 1
    assert "a task that has not ended" in refused.output
    report = await tasks.replay(task_id)
    assert report["verdict"] == "same", report
    assert (await tasks.run("verify", "--json")).exit_code == 0

"""Replays with another model: what it decides and costs, paid by a sandbox, and nothing left in the project."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from agents.gateway_world import PRICED, UNPRICED, World, world
from agents.obedient import call, proposal
from flows.own_stack import own_stack
from flows.replayed_tasks import Tasks
from starlette.responses import JSONResponse, PlainTextResponse

from counterpoint.cli.replay.markdown import task_report
from counterpoint.cli.replay.task import TaskReport

pytestmark = pytest.mark.timeout(240)
OTHER, FORBIDDEN = "openai/gpt-4o", "openai/gpt-4.1"
PROJECT, SANDBOX = "pipelines", "pipelines-replay"
ACT, OTHER_ACT = "Flush the name cache", "Restart the resolver"
KNOWLEDGE = {
    "runbook.md": "# Name resolution\n\nWhen orders_ingest cannot resolve ldap.internal, its cache is gone.\n\n"
    f"1. {OTHER_ACT} with `systemctl restart named`.\n2. Check that `dig ldap.internal` answers.\n",
    "warehouse.md": f"# Warehouse\n\n{ACT} of the ldap.internal hosts with `nscd -i hosts`.\n",
    "coffee.md": "# Coffee\n\nThe machine is descaled on Mondays.\n",
}
FAILED = {"error_message": "could not resolve ldap.internal: DNS lookup timed out after 5 s"}
LEADER = "fetch_orders of orders_ingest cannot resolve ldap.internal"


def says(act: str, *looks: str) -> Any:
    """A model that makes these calls, then proposes the passage with an act."""

    def said(messages: Any) -> str:
        made = sum(each["role"] == "assistant" for each in messages)
        return looks[made] if made < len(looks) else proposal(messages, has=act)

    return said


SEARCH, RUNS = call("search", text="flush the name cache"), call("runs")


@pytest_asyncio.fixture(scope="module")
async def outside() -> AsyncIterator[World]:
    """The world in which the models are."""
    async with world() as made:
        made.script = says(ACT, SEARCH, RUNS)
        yield made


@pytest_asyncio.fixture(scope="module")
async def tasks(outside: World) -> AsyncIterator[Tasks]:
    """A project on a stack with a model, and others that replays may call. Its task `failing` was solved."""
    async with own_stack(
        COUNTERPOINT_MODEL=PRICED,
        COUNTERPOINT_MODEL_SESSIONS=PRICED,
        COUNTERPOINT_REPLAY_MODELS=f"{OTHER}, {UNPRICED}",
        COUNTERPOINT_RELATIONS_TOKENS="0",
        OPENAI_API_BASE=f"{outside.url}/v1",
        OPENAI_API_KEY="sk-of-the-provider",
    ) as stack:
        headers = {"Authorization": f"Bearer {stack.endpoints.token}"}
        async with httpx.AsyncClient(base_url=stack.endpoints.http, headers=headers, timeout=60) as http:
            made = Tasks(stack, http, PROJECT)
            for source, text in KNOWLEDGE.items():
                await made.post("/v1/documents", {"source": source, "text": text})
            # The gateway loads its client of models at its first call.
            await made.submit("first", "question", "How often is the machine descaled?")
            await made.submit("failing", "troubleshoot", LEADER, **FAILED)
            await made.solved("failing")
            yield made


@pytest.fixture(autouse=True)
def recorded_script(outside: World) -> Iterator[None]:
    """The models say what the recorded one said."""
    outside.script = says(ACT, SEARCH, RUNS)
    yield
    outside.answers.clear()


async def costs(tasks: Tasks, project: str, **by: Any) -> Any:
    done = await asyncio.to_thread(read, tasks, "/v1/costs", project=project, **by)
    return done["total"]


def read(tasks: Tasks, path: str, **params: Any) -> Any:
    url, token = tasks.where[1], tasks.where[3]
    reply = httpx.get(url + path, params=params, headers={"Authorization": f"Bearer {token}"}, timeout=60)
    return reply.raise_for_status().json()


async def test_the_same_words_are_the_same_decisions_and_leave_nothing_in_the_project(
    tasks: Tasks, outside: World
) -> None:
    before, spent = await tasks.leaves(), await costs(tasks, PROJECT)
    called = len(outside.seen)
    prompts = [each["messages"] for each in outside.seen if "fetch_orders" in json.dumps(each["messages"])]
    report = await tasks.replay("failing", "--model", OTHER)
    assert report["verdict"] == "same", report
    model = report["model"]
    assert (model["model"], model["sandbox"]) == (OTHER, SANDBOX)
    assert model["recorded_cost"]["calls"] == model["replayed_cost"]["calls"] == 3
    assert [each["model"] for each in outside.seen[called:]] == ["gpt-4o"] * 3
    assert [each["messages"] for each in outside.seen[called:]] == prompts, "they are those of the recorded model"
    (delivery,) = model["deliveries"]
    assert delivery["recorded_models"] == [PRICED]
    assert delivery["recorded_result"] == delivery["replayed_result"]
    assert ACT in delivery["replayed_result"]["text"]
    assert float(model["replayed_cost"]["usd"]) > float(model["recorded_cost"]["usd"]) > 0
    # The project has no further commit but of the services that follow others, and no further call.
    assert await tasks.writers_since(before) <= {"lineage", "memory"}
    assert await costs(tasks, PROJECT) == spent
    paid = await costs(tasks, SANDBOX, by="model")
    assert (paid["calls"], paid["usd"]) == (3, model["replayed_cost"]["usd"])
    # A second replay has the replies of the first, and pays nothing.
    again = (await tasks.run("replay", "failing", "--model", OTHER)).output
    assert "every decision that runs again is the same" in again
    assert "3 calls had been made by an earlier replay, so that this one paid 0" in again
    assert len(outside.seen) == called + 3
    assert await costs(tasks, SANDBOX) == paid


async def test_another_decision_is_shown_with_both_contexts_its_cost_and_its_result(
    tasks: Tasks, outside: World
) -> None:
    outside.script = says(OTHER_ACT, call("search", text="restart named"))
    report = await tasks.replay("failing", "--model", OTHER, "--again")
    assert report["verdict"] == "different"
    step = next(each for each in report["steps"] if "difference" in each)
    assert (step["service"], step["step"]) == ("developer", "01-turn")
    assert "restart named" in json.dumps(step["difference"]["replayed"])
    assert step["context"]
    (delivery,) = report["model"]["deliveries"]
    assert delivery["queries"] == 1, "its search is not in the record, and was answered as of then"
    assert {each["store"] for each in delivery["read"]} == {"chunks"}
    assert ACT in delivery["recorded_result"]["text"]
    assert OTHER_ACT in delivery["replayed_result"]["text"]
    assert report["model"]["replayed_cost"]["calls"] == 2
    follows = [each["verdict"] for each in report["steps"] if each["service"] == "manager"]
    assert "follows" in follows
    shown = task_report(TaskReport.model_validate(report))
    assert "## First difference: developer" in shown
    assert "Recorded context, " in shown
    assert "Replayed context, the same, and of its own 3 items: chunks/" in shown
    assert "| cost |" in shown
    assert OTHER_ACT in shown


@pytest.mark.slow
async def test_later_documents_are_not_shown_to_the_model(tasks: Tasks, outside: World) -> None:
    await tasks.post("/v1/documents", {"source": "later.md", "text": f"# Later\n\n{ACT} by `later --now`."})
    outside.script = says(ACT, call("search", text="flush the name cache later"))
    await tasks.replay("failing", "--model", OTHER, "--again")
    prompts = json.dumps(outside.seen[-1]["messages"])
    assert "nscd" in prompts
    assert "later --now" not in prompts


@pytest.mark.slow
async def test_a_budget_that_ends_in_the_middle_ends_the_replay_and_a_larger_one_goes_on(
    tasks: Tasks, outside: World
) -> None:
    first = next(each for each in outside.seen if "fetch_orders" in json.dumps(each["messages"]))
    estimate = 64 + 1200 + sum(len(each["content"].encode()) + 16 for each in first["messages"])
    called = len(outside.seen)
    report = await tasks.replay("failing", "--model", UNPRICED, "--tokens", str(estimate + 30), code=1)
    assert report["verdict"] == "stopped"
    (delivery,) = report["model"]["deliveries"]
    assert "the budget of the replay" in delivery["stopped"]
    assert report["model"]["replayed_cost"] == {
        "calls": 1, "usd": "0", "tokens": 25, "unpriced": 1, "kept": 0, "kept_usd": "0",
        "seconds": report["model"]["replayed_cost"]["seconds"],
    }  # fmt: skip
    assert len(outside.seen) == called + 1
    developed = {each["step"]: each["verdict"] for each in report["steps"] if each["service"] == "developer"}
    assert developed["01-turn"] == "same"
    assert developed["02-turn"] == developed["done"] == "not replayed"
    assert "replayed_result" not in delivery
    assert "the budget of the replay" in task_report(TaskReport.model_validate(report))
    whole = await tasks.replay("failing", "--model", UNPRICED, "--tokens", "100000")
    assert whole["verdict"] == "same"
    assert (whole["model"]["replayed_cost"]["calls"], whole["model"]["replayed_cost"]["kept"]) == (3, 1)


@pytest.mark.slow
async def test_a_budget_in_dollars_covers_no_model_without_a_known_price(tasks: Tasks) -> None:
    priceless = await tasks.replay("failing", "--model", UNPRICED, "--again", code=1)
    assert "whose price is known" in priceless["model"]["deliveries"][0]["stopped"]


@pytest.mark.slow
async def test_a_model_that_is_away_or_answers_garbage_ends_the_replay_and_may_be_tried_again(
    tasks: Tasks, outside: World
) -> None:
    await tasks.submit("faulty", "troubleshoot", LEADER + " again", **FAILED)
    await tasks.solved("faulty")
    outside.answers = [JSONResponse({"error": {"message": "busy"}}, 503) for _ in range(3)]
    away = await tasks.replay("faulty", "--model", OTHER, code=1)
    assert away["verdict"] == "stopped"
    assert "busy or not reachable" in away["model"]["deliveries"][0]["stopped"]
    assert away["model"]["replayed_cost"]["calls"] == 0
    outside.answers = [PlainTextResponse("<html>garbage</html>")]
    garbage = await tasks.replay("faulty", "--model", OTHER, code=1)
    assert garbage["verdict"] == "stopped"
    assert "unknown_outcome" in garbage["model"]["deliveries"][0]["stopped"]
    assert (await tasks.replay("faulty", "--model", OTHER, "--again"))["verdict"] == "same"
    # Words that are no proposal are the model's own fault, which the developer meets as it does at work.
    outside.script = lambda messages: "I would rather not."
    refusing = await tasks.replay("faulty", "--model", OTHER, "--again")
    assert refusing["verdict"] == "different"
    (delivery,) = refusing["model"]["deliveries"]
    assert delivery["replayed_result"]["outcome"]
    assert "cannot be used" in json.dumps(delivery["replayed_decisions"])


async def call_model(tasks: Tasks, task_id: str, commit_id: str, token: str, **changes: Any) -> Any:
    """The reply to a call of a replay."""
    body = {
        "key": "01-turn", "messages": [{"role": "user", "content": "Hello?"}], "max_tokens": 10, "model": OTHER,
        "budget": {"usd": "0.01"}, "commit_id": commit_id, **changes,
    }  # fmt: skip
    path = f"{tasks.where[1]}/v1/tasks/{task_id}/replay/calls"
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(headers=headers, timeout=60) as http:
        return await http.post(path, json=body, params={"project": PROJECT})


async def test_a_call_is_refused_for_another_model_task_or_principal(tasks: Tasks, outside: World) -> None:
    called, paid = len(outside.seen), await costs(tasks, SANDBOX)
    steps = (await tasks.post("/v1/tasks/failing/replay", {}, limit=200))["items"]
    commit_id = next(each["record"]["commit_id"] for each in steps if each["record"]["step"] == "done")
    administrator = tasks.where[3]
    refused = await call_model(tasks, "failing", commit_id, administrator, model=FORBIDDEN)
    assert (refused.status_code, refused.json()["code"]) == (403, "model")
    assert f"{PRICED}, {OTHER}, {UNPRICED}" in refused.json()["detail"]
    assert (await call_model(tasks, "first", commit_id, administrator)).status_code == 404
    assert (await call_model(tasks, "none", commit_id, administrator)).json()["code"] == "unknown_task"
    assert (await call_model(tasks, "failing", "none", administrator)).json()["code"] == "not_found"
    boundless = await call_model(tasks, "failing", commit_id, administrator, budget={})
    assert (boundless.status_code, boundless.json()["errors"][0]["problem"][:6]) == (422, "budget")
    for name, roles, needed in (
        ("ines", ["read", "audit", "submit"], f"submit in project {SANDBOX}"),
        ("bert", ["read", "submit"], f"audit in project {PROJECT}"),
    ):
        made = await tasks.post(
            "/v1/principals", {"name": name, "kind": "person", "projects": [PROJECT], "roles": roles}
        )
        refused = await call_model(tasks, "failing", commit_id, made["token"])
        assert (refused.status_code, refused.json()["code"]) == (403, "role")
        assert needed in refused.json()["detail"]
    assert len(outside.seen) == called
    assert await costs(tasks, SANDBOX) == paid


@pytest.mark.slow
async def test_an_item_that_is_left_out_is_in_no_answer(tasks: Tasks, outside: World) -> None:
    outside.script = says(OTHER_ACT, call("search", text="flush the name cache of the ldap.internal hosts"))
    report = await tasks.replay("failing", "--model", OTHER, "--without", "warehouse.md")
    assert report["left_out"] > 0
    assert report["verdict"] == "different"
    assert report["model"]["deliveries"][0]["queries"] == 1
    assert "nscd" not in json.dumps(outside.seen[-1]["messages"])


@pytest.mark.slow
async def test_every_kind_of_task_is_decided_by_another_model(tasks: Tasks, outside: World) -> None:
    outside.script = lambda messages: "The machine is descaled on Mondays. [1]"
    await tasks.submit("asked", "question", "On which day is the machine descaled?", session_id="talk")
    report = await tasks.replay("asked", "--model", OTHER)
    assert report["verdict"] == "same", report
    assert report["model"]["replayed_cost"]["calls"] == report["model"]["recorded_cost"]["calls"] > 0
    await tasks.submit("continued", "question", "On which day is the machine descaled again?", session_id="talk")
    async with asyncio.timeout(30):
        while "compacted" not in await asyncio.to_thread(read, tasks, "/v1/sessions/talk", project=PROJECT):
            pass
    compacted = await tasks.replay("continued", "--model", OTHER)
    assert compacted["verdict"] == "same", compacted
    assert {each["service"] for each in compacted["model"]["deliveries"]} == {"developer", "manager"}
    outside.script = lambda messages: "NO ANSWER"
    report = await tasks.replay("asked", "--model", OTHER, "--again")
    assert report["verdict"] == "different"
    (delivery,) = report["model"]["deliveries"]
    assert "Mondays" in delivery["recorded_result"]["text"]
    assert delivery["replayed_result"]
    outside.script = says("Restart")
    planned = await tasks.submit("planned", "plan", "Plan how orders_ingest resolves ldap.internal again")
    if planned["state"] != "completed":
        await tasks.post("/v1/tasks/planned/cancel", {"reason": "no longer needed"})
        await tasks.until("planned", "cancelled")
    report = await tasks.replay("planned", "--model", OTHER)
    assert report["verdict"] == "same", report
    assert report["model"]["replayed_cost"]["calls"] > 0


@pytest.mark.slow
async def test_the_sandbox_is_verified_and_erased_as_any_project(tasks: Tasks) -> None:
    await tasks.replay("failing", "--model", OTHER)
    sandbox = Tasks.__new__(Tasks)
    sandbox.where = [*tasks.where[:4], "--project", SANDBOX]
    assert (await sandbox.run("verify", "--json")).exit_code == 0
    erased = await sandbox.run("erase", "--everything", "--reason", "no longer needed", "--yes")
    assert erased.exit_code == 0, erased.output
    assert (await costs(tasks, SANDBOX))["calls"] == 0
    assert (await tasks.replay("failing", "--model", OTHER, "--again"))["verdict"] == "same"


@pytest.mark.slow
async def test_a_limit_of_the_sandbox_holds_too(tasks: Tasks) -> None:
    where = [*tasks.where[:4], "--project", SANDBOX]
    elsewhere = Tasks.__new__(Tasks)
    elsewhere.where = where
    assert (await elsewhere.run("limit", "set", "project", "--tokens", "1")).exit_code == 0
    try:
        report = await tasks.replay("failing", "--model", OTHER, "--again", code=1)
        assert f"the limit of project {SANDBOX}" in report["model"]["deliveries"][0]["stopped"]
    finally:
        await elsewhere.run("limit", "remove", "project")


async def test_a_task_of_another_project_is_not_found(tasks: Tasks) -> None:
    where = [*tasks.where[:4], "--project", "elsewhere"]
    elsewhere = Tasks.__new__(Tasks)
    elsewhere.where = where
    done = await elsewhere.run("replay", "failing", "--model", OTHER)
    assert done.exit_code == 1
    assert "is not a task of project elsewhere" in done.output
    assert (await costs(tasks, "elsewhere-replay"))["calls"] == 0


QUESTIONS = (
    "On which day is the machine descaled?",
    "On which day is the coffee machine descaled?",
    "The coffee machine is descaled on which day?",
)


def estimate(body: Any) -> int:
    """Return the tokens that are reserved for a call."""
    return 64 + int(body["max_tokens"]) + sum(len(each["content"].encode()) + 16 for each in body["messages"])


@pytest.mark.slow
async def test_many_tasks_are_replayed_by_another_model_under_one_budget(tasks: Tasks, outside: World) -> None:
    many = Tasks.__new__(Tasks)
    many.where, many.project, many._http = [*tasks.where[:4], "--project", "regressed"], "regressed", tasks._http
    none = await many.run("replay", "--all", "--model", OTHER)
    assert (none.exit_code, "There is no ended task to replay." in none.output) == (0, True)
    for source, text in KNOWLEDGE.items():
        await many.post("/v1/documents", {"source": source, "text": text})
    outside.script = lambda messages: "The machine is descaled on Mondays. [1]"
    await many.submit("idle", "develop", "Write a job that descales", budget={"tokens": 1})
    await many.post("/v1/tasks/idle/cancel", {"reason": "no longer needed"})
    await many.until("idle", "cancelled")
    silent = await many.replay("--all", "--model", OTHER)
    assert (silent["regression"]["without_model"], silent["tasks"]) == (1, [])
    for number, question in enumerate(QUESTIONS):
        made = await many.submit(f"q-{number}", "question", question)
        assert made["state"] == "completed", made
    called = len(outside.seen)
    whole = await many.replay("--all", "--model", OTHER)
    assert [each["task_id"] for each in whole["tasks"]] == ["q-0", "q-1", "q-2"]
    regression, bodies = whole["regression"], outside.seen[called:]
    assert (regression["tasks"], regression["replayed"], regression["not_run"]) == (4, 3, 0)
    assert regression["verdicts"] == {"same": 3}
    assert regression["replayed_cost"]["calls"] == len(bodies) >= 3
    assert regression["recorded_cost"]["seconds"] > 0
    again = await many.run("replay", "--all", "--model", OTHER)
    assert "3 of 3 tasks decided the same." in again.output
    assert f"{len(bodies)} calls had been made by an earlier replay, so that this one paid 0" in again.output
    assert "4 of 4: q-2 same, 0" in again.stderr
    assert len(outside.seen) == called + len(bodies)
    # The budget covers the first task and no more.
    first = len(bodies) // 3
    budget = max(25 * number + estimate(body) for number, body in enumerate(bodies[:first]))
    stopped = await many.replay("--all", "--model", UNPRICED, "--tokens", str(budget), code=1)
    regression = stopped["regression"]
    assert (regression["verdicts"], regression["not_run"]) == ({"same": 1, "stopped": 1}, 1)
    assert "the budget of the replay" in regression["stopped"]
    shown = await many.run("replay", "--all", "--model", UNPRICED, "--tokens", str(budget))
    assert "1 task not run; run it again to go on" in shown.output
    assert "| q-1 | stopped | the budget of the replay" in shown.output
    paid = len(outside.seen)
    on = await many.replay("--all", "--model", UNPRICED, "--tokens", "100000")
    assert on["regression"]["verdicts"] == {"same": 3}
    assert on["regression"]["replayed_cost"]["kept"] == paid - called - len(bodies)
    outside.script = lambda messages: "NO ANSWER"
    different = await many.run("replay", "--all", "--model", OTHER, "--again")
    assert different.exit_code == 0, different.output
    assert "0 of 3 tasks decided the same." in different.output
    assert "| q-2 | different | developer: `messages" in different.output
    late = await many.replay("--all", "--since", "2999-01-01", "--model", OTHER)
    assert late["regression"]["tasks"] == 0

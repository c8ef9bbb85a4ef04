"""Faults of a model during an investigation, through the real gateway, at memory's real door: each ends as
docs/agents.md says, and nothing is paid twice."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from agents.gateway_world import PRICED, Door, World, client, delegated, gateway
from agents.obedient import call, proposal
from agents.scripted_model import ERROR, FAILURE, OTHERS, RUNBOOK
from agents.test_rag_checkpoints import memory as delivery
from memory_service.house import House
from starlette.responses import JSONResponse, Response

from counterpoint.client import Gateway
from counterpoint.developer.handlers import OFFLINE, handle_delegated
from counterpoint.developer.settings import Deadlines
from counterpoint.manager.gateway.provider_limits import ProviderLimits
from counterpoint.proto.ingest import Document, IngestReply, IngestRequest
from counterpoint.proto.memory import Commit, List
from counterpoint.proto.tasks import SubmitTask, TaskDelegated, TaskWorked

pytestmark = pytest.mark.xdist_group("litellm")  # its import takes seconds
ACT = "Flush the name cache of the ldap.internal hosts with `nscd -i hosts`."


@dataclass(frozen=True)
class Fault:
    """A fault: what the world outside does, the caveat of the result, and the states of the calls in the ledger."""

    does: Callable[[World], Any]
    caveat: str
    calls: dict[str, int]
    requests: int
    tokens: int | None = None
    deadline_s: float = 60.0


def answers(*responses: Response) -> Callable[[World], None]:
    """The provider answers so, each in its turn."""

    def does(outside: World) -> None:
        outside.answers = list(responses)

    return does


def says(*texts: str) -> Callable[[World], None]:
    """The model says so, the last text for ever."""

    def does(outside: World) -> None:
        left = list(texts)
        outside.script = lambda messages: left.pop(0) if len(left) > 1 else left[0]

    return does


def completion(content: str | None, finish: str = "stop", **message: Any) -> Response:
    """A completion with whatever else its message has."""
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": content, **message}}
    usage = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
    return JSONResponse(
        {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    )


def busy(status: int) -> Response:
    return JSONResponse({"error": {"message": "busy"}}, status)


def looks_then(*responses: Response) -> Callable[[World], None]:
    """The model makes a call; then the provider answers so."""

    def does(outside: World) -> None:
        def script(messages: Any) -> str:
            outside.answers = list(responses)
            return call("search", text="name cache")

        outside.script = script

    return does


def looks_dearly(outside: World) -> None:
    """The model makes calls whose replies are long."""
    outside.output_tokens = 12_000
    number = iter(range(100))
    outside.script = lambda messages: call("search", text=f"name cache {next(number)}")


def holds(outside: World) -> None:
    outside.hold.clear()


def calls_a_function(outside: World) -> None:
    function = {"name": "search", "arguments": '{"text": "dns"}'}
    outside.tool_calls = [{"id": "c", "type": "function", "function": function}]


FAULTS = {
    "429 for ever": Fault(answers(*[busy(429)] * 3), "HTTP 429", {"released": 1}, 3),
    "429 once, then two refusals": Fault(
        lambda outside: (says("I cannot help with that.")(outside), answers(busy(429))(outside)),
        "the reply is not a JSON object", {"settled": 2}, 3,
    ),
    "a wrong key": Fault(answers(busy(401)), "HTTP 401", {"released": 1}, 1),
    "an invalid response": Fault(answers(Response("garbage")), "unknown_outcome", {"unknown": 1}, 1),
    "an error page": Fault(answers(*[Response("<html>", 500)] * 3), "HTTP 500", {"released": 1}, 3),
    "malformed JSON": Fault(says('{"tool": "search", "arguments": {'), "not a JSON object", {"settled": 2}, 2),
    "a refusal in prose": Fault(says("I cannot help with that."), "not a JSON object", {"settled": 2}, 2),
    "a refusal of its own field": Fault(
        answers(*[completion(None, refusal="no")] * 2), "the reply is empty", {"settled": 2}, 2
    ),
    "a filtered reply": Fault(answers(*[completion("", "content_filter")] * 2), "is empty", {"settled": 2}, 2),
    "a reply that is cut off": Fault(answers(*[completion('{"tool"', "length")] * 2), "cut off", {"settled": 2}, 2),
    "a function call": Fault(calls_a_function, "the reply is empty", {"settled": 2}, 2),
    "a tool that does not exist": Fault(says(call("override")), "there is no such tool", {"settled": 2}, 2),
    "an endless loop": Fault(says(call("search", text="name cache")), "was made before", {"settled": 3}, 3),
    "a provider that is away after a turn": Fault(
        looks_then(*[busy(503)] * 3), "HTTP 503", {"settled": 1, "released": 1}, 4
    ),
    "a budget that ends": Fault(looks_dearly, "budget", {"settled": 2}, 2, tokens=20_000),
    "no answer in time": Fault(holds, "did not respond in time", {"unknown": 1}, 1, deadline_s=1.5),
}  # fmt: skip


@pytest.fixture
async def model_client(door: Door, outside: World) -> AsyncIterator[Gateway]:
    """The developer's client of a gateway."""
    async with gateway(door, ProviderLimits(models=(PRICED,))) as (url, _):
        made = client(url)
        yield made
        await made.close()


@pytest.fixture
async def runbook_project(house: House, project: str) -> None:
    """A project with the runbook and other documents."""
    texts = {"runbook.md": RUNBOOK, **OTHERS}
    request = IngestRequest(
        origin=house.standing(project, principal="administrator"),
        documents=tuple(Document(source=name, text=text) for name, text in texts.items()),
    )
    reply = IngestReply.model_validate_json(await house.door.ingest("router", request.model_dump_json().encode()))
    assert reply.refusal is None, reply.refusal


def failure(project: str, task_id: str) -> TaskDelegated:
    task = SubmitTask(kind="troubleshoot", description=FAILURE, error_message=ERROR)
    return TaskDelegated(
        task_id=task_id, project=project, session_id="s", attempt=1, lane="investigate", task=task, after=("before",)
    )


async def worked(
    door: Door, project: str, task_id: str, gateway: Gateway, deadline_s: float = 60.0, **budget: Any
) -> TaskWorked:
    """The result of two deliveries of a failure, of which the first is not acknowledged."""
    message_id = await delegated(door.house, project, task_id, **budget)
    deadlines = Deadlines(investigation_s=deadline_s)
    for fence in (1, 2):
        memory = delivery(door, message_id, fence)
        commit = await handle_delegated(failure(project, task_id), memory, gateway, None, deadlines)
    await memory.step(commit)
    return result(commit)


def result(commit: Commit) -> TaskWorked:
    (only,) = (each.data for each in commit.messages if each.type == TaskWorked.TYPE)
    return TaskWorked.model_validate(only)


async def ledger(house: House, project: str) -> Counter[str]:
    """The states of the calls that were made."""
    found = await house.answer("router", house.standing(project), List(store="model_calls"))
    return Counter(item.body["state"] for item in found.items)


@pytest.mark.usefixtures("runbook_project")
@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_ends_in_the_result_of_the_rules_and_is_paid_once(
    name: str, house: House, door: Door, model_client: Gateway, outside: World, project: str
) -> None:
    fault = FAULTS[name]
    rules = await worked(door, project, "t-rules", OFFLINE)
    fault.does(outside)
    budget = {"tokens": fault.tokens} if fault.tokens else {}
    found = await worked(door, project, "t-model", model_client, fault.deadline_s, **budget)
    assert rules.outcome == "proposed"
    assert (found.outcome, found.text, found.confidence) == (rules.outcome, rules.text, rules.confidence)
    assert found.findings.caveats[:-1] == rules.findings.caveats
    assert fault.caveat in found.findings.caveats[-1]
    assert len(outside.seen) == fault.requests
    assert await ledger(house, project) == fault.calls


@pytest.mark.usefixtures("runbook_project")
async def test_a_reply_that_breaks_off_is_an_unknown_outcome(
    house: House, door: Door, model_client: Gateway, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = 0

    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        await reader.readuntil(b"\r\n\r\n")
        taken += 1
        writer.write(b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n{"id": "1"')
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(break_off, "127.0.0.1", 0)
    async with server:
        monkeypatch.setenv("OPENAI_API_BASE", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        found = await worked(door, project, "t-model", model_client)
    assert "unknown_outcome" in found.findings.caveats[-1]
    assert (taken, await ledger(house, project)) == (1, {"unknown": 1})


@pytest.mark.usefixtures("runbook_project")
async def test_a_supported_proposal_passes_memory_and_is_paid_once(
    house: House, door: Door, model_client: Gateway, outside: World, project: str
) -> None:
    def script(messages: Any) -> str:
        made = sum(each["role"] == "assistant" for each in messages)
        return proposal(messages, has="Flush") if made else call("search", text="flush the name cache")

    outside.script = script
    found = await worked(door, project, "t-model", model_client)
    assert (found.text or "").startswith(f"**Action**: {ACT}")
    assert await ledger(house, project) == {"settled": 2}
    assert len(outside.seen) == 2


@pytest.mark.usefixtures("runbook_project")
async def test_no_prompt_holds_texts_above_the_clearance_of_the_providers(
    house: House, door: Door, model_client: Gateway, outside: World, project: str
) -> None:
    async with house.superuser() as connection:
        await connection.execute(
            "UPDATE records SET label = 2 WHERE project = $1 AND store = 'chunks' AND body->>'source' = 'warehouse.md'",
            project,
        )
    house.restart()
    outside.script = lambda messages: call("search", text="flush the name cache")
    found = await worked(door, project, "t-model", model_client)
    assert "label" in found.findings.caveats[-1]
    assert all("Flush" not in str(request) for request in outside.seen)

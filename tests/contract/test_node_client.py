"""Another system, in another language and with nothing of ours installed, gets a task in and its end out."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from contract.node_client import SOURCE, NodeClient
from contract.outsider import TIMEOUT_S, Bus, finish, run
from nats.aio.client import Client
from nats.js.api import RawStreamMsg

from counterpoint.bus.codec import STRUCTURED, decode
from counterpoint.proto import generate, subjects
from counterpoint.proto.tasks import SubmitTask, TaskCompleted
from counterpoint.proto.validation import parse

TASK: dict[str, Any] = {
    "kind": "troubleshoot",
    "description": "The hourly import of orders cannot reach the ERP: Zażółć gęślą jaźń 🎼",
    "error_message": "Temporary failure in name resolution",
    "systems": ["erp"],
}


async def stored(memory: Client, line: dict[str, Any]) -> RawStreamMsg:
    """The message that the client says was stored."""
    return await memory.jetstream().get_msg(line["stream"], line["sequence"])


@pytest.mark.parametrize("mode", ["bare", "binary", "structured"])
async def test_a_task_of_the_client_lands_in_the_intake(
    node_client: NodeClient, bus: Bus, memory: Client, mode: str
) -> None:
    environment = bus.environment("publisher") | {"WAIT_S": "0"}
    code, lines, errors = await finish(await run(node_client.command(mode), environment, TASK))
    assert (code, errors) == (0, "")
    (line,) = lines
    assert (line["event"], line["mode"], line["stream"]) == ("stored", mode, subjects.INTAKE)

    message = await stored(memory, line)
    assert message.subject == subjects.of(SubmitTask.TYPE, bus.project)
    sent = TASK | {"task_id": line["task_id"]}
    body = json.loads(message.data or b"")
    headers = message.headers or {}
    match mode:
        case "bare":
            assert (headers, body) == ({}, sent)
        case "binary":
            assert body == sent
            assert headers["ce-specversion"] == "1.0"
            assert headers["ce-type"] == SubmitTask.TYPE
            assert headers["ce-source"].startswith("https://")
            assert headers["ce-id"]
        case "structured":
            assert headers == {"content-type": STRUCTURED}
            assert body["data"] == sent
            assert (body["specversion"], body["type"]) == ("1.0", SubmitTask.TYPE)

    inbound = decode(
        message.subject,
        headers,
        message.data or b"",
        stream=subjects.INTAKE,
        sequence=line["sequence"],
        delivered=1,
        stored_at=message.time,  # type: ignore[arg-type]
    )
    assert (inbound.type, inbound.project, inbound.body) == (SubmitTask.TYPE, bus.project, sent)
    assert (inbound.source is None) == (mode == "bare")
    assert isinstance(parse(inbound.type, inbound.body), SubmitTask)


async def test_the_client_prints_the_end_of_its_own_task_only(
    node_client: NodeClient, bus: Bus, memory: Client
) -> None:
    process = await run(node_client.command("binary"), bus.environment("publisher"), TASK | {"task_id": "ours-1"})
    assert process.stdout is not None
    first = json.loads(await asyncio.wait_for(process.stdout.readline(), TIMEOUT_S))
    assert first["event"] == "stored"

    golden = json.loads((generate.FOLDER / "examples" / TaskCompleted.TYPE / "full.json").read_text())
    for task_id in ("somebody-elses", "ours-1"):
        await memory.jetstream().publish(
            subjects.of(TaskCompleted.TYPE, bus.project),
            json.dumps(golden | {"task_id": task_id}).encode(),
            headers={"ce-type": TaskCompleted.TYPE},
        )
    code, lines, errors = await finish(process)
    assert (code, errors) == (0, "")
    (end,) = lines
    assert (end["event"], end["type"]) == ("completed", TaskCompleted.TYPE)
    assert end["data"] == golden | {"task_id": "ours-1"}
    assert end["data"]["findings"]["citations"]


async def test_the_client_exits_with_3_when_no_end_comes_in_time(node_client: NodeClient, bus: Bus) -> None:
    environment = bus.environment("publisher") | {"WAIT_S": "0.2"}
    code, lines, _ = await finish(await run(node_client.command("bare"), environment, TASK))
    assert code == 3
    assert [line["event"] for line in lines] == ["stored"]


async def test_another_project_is_closed_to_it(node_client: NodeClient, bus: Bus) -> None:
    environment = bus.environment("publisher") | {"PROJECT": "finance", "WAIT_S": "0"}
    code, lines, errors = await finish(await run(node_client.command("bare"), environment, TASK))
    assert code != 0
    assert lines == []
    assert "ermission" in errors


def test_its_lock_names_public_packages_of_one_registry() -> None:
    lock = json.loads((SOURCE / "package-lock.json").read_text())
    names = {name.removeprefix("node_modules/") for name in lock["packages"]} - {""}
    assert not any("counterpoint" in name for name in names)
    assert {name for name in names if name.startswith("@nats-io/")} == {
        "@nats-io/nats-core",
        "@nats-io/nkeys",
        "@nats-io/nuid",
        "@nats-io/transport-node",
    }
    hosts = {
        package.get("resolved", "https://registry.npmjs.org/").split("/")[2] for package in lock["packages"].values()
    }
    assert hosts == {"registry.npmjs.org"}


def test_the_client_is_installed_outside_the_tree(node_client: NodeClient) -> None:
    root = Path(__file__).parents[2]
    assert not node_client.folder.resolve().is_relative_to(root)
    assert not (SOURCE / "node_modules").exists()

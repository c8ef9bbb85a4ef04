"""A task submitted in each of the three forms by a Node client ends, and its end comes with findings."""

import asyncio
import json
import os
from datetime import UTC, datetime, timedelta

import pytest
from contract.node_client import NodeClient, install

from counterpoint.local.stack import Stack

TIMEOUT_S = 60
DEADLINE_S = 5


@pytest.fixture(scope="session")
def node_client() -> NodeClient:
    """The Node client, installed."""
    return install()


@pytest.mark.parametrize("mode", ["bare", "binary", "structured"])
async def test_a_foreign_publisher_sees_its_task_end_with_findings(
    stack: Stack, node_client: NodeClient, mode: str
) -> None:
    endpoints = stack.endpoints.model_dump()
    publisher = endpoints["users"]["publisher"]
    process = await asyncio.create_subprocess_exec(
        *node_client.command(mode),
        env={
            "PATH": os.environ["PATH"],
            "NATS_URL": endpoints["nats"],
            "NATS_USER": publisher["user"],
            "NATS_PASSWORD": publisher["password"],
            "NATS_INBOX_PREFIX": publisher["inbox_prefix"],
            "PROJECT": f"foreign-{mode}",
            "WAIT_S": str(TIMEOUT_S),
        },
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    # Nothing is known in a new project: the question stops for want of evidence, and its deadline ends it.
    deadline = datetime.now(UTC) + timedelta(seconds=DEADLINE_S)
    task = {"kind": "question", "description": "How long are orders kept?", "deadline": deadline.isoformat()}
    output, errors = await asyncio.wait_for(process.communicate(json.dumps(task).encode()), TIMEOUT_S + 10)
    lines = [json.loads(line) for line in output.decode().splitlines()]
    assert errors == b""
    assert lines[0]["event"] == "stored"
    assert lines[0]["mode"] == mode
    assert "submitted" in [line["event"] for line in lines]
    end = lines[-1]
    assert end["event"] in ("completed", "failed")
    assert end["type"] == f"counterpoint.task.{end['event']}.v1"
    findings = end["data"]["findings"]
    assert findings.keys() >= {"similar_attempts", "citations", "downstream", "next_steps", "caveats"}

"""The blocks of proto/README.md are run here, or say that they are not."""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from contract.node_client import NodeClient
from contract.outsider import TIMEOUT_S, Bus, finish, run
from nats.aio.client import Client

from counterpoint.proto import generate, subjects
from counterpoint.proto.messages import Message
from counterpoint.proto.tasks import SubmitTask, TaskCompleted, TaskEscalated, TaskRejected
from counterpoint.proto.validation import ignored_fields, parse

TEXT = (generate.FOLDER / "README.md").read_text()
BLOCKS = re.findall(r"^([^\n]*)\n\n```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    """The blocks of a language that are not marked as not run."""
    return [code for before, found, code in BLOCKS if found == language and "*(not run)*" not in before]


def test_every_block_is_run_or_says_that_it_is_not() -> None:
    assert len(BLOCKS) == TEXT.count("```") // 2
    told = {language for before, language, _ in BLOCKS if "*(not run)*" in before}
    assert told == {"go", "sh"}
    assert {language for _, language, _ in BLOCKS} - told == {"json", "python", "ts"}


def test_its_messages_are_legal() -> None:
    bodies = [json.loads(code) for code in blocks("json")]
    for message_type, body in zip((SubmitTask.TYPE, TaskRejected.TYPE), bodies, strict=True):
        assert parse(message_type, body)
        assert ignored_fields(message_type, body) == ()


def test_every_subject_it_names_is_one() -> None:
    for message_type in subjects.message_types():
        subject = subjects.of(message_type, "<project>")
        if subjects.stream_of(subject) == subjects.INTAKE:
            assert f"| `{subject}` | publish |" in TEXT
            assert message_type in TEXT
    for stream in subjects.LIVE_STREAMS:
        (pattern,) = subjects.STREAMS[stream]
        assert f"| `{subjects.live(pattern).replace('>', '<project>.>')}` | watch" in TEXT


ENDS = pytest.mark.parametrize("end", [TaskCompleted, TaskEscalated])


@ENDS
async def test_its_python_client_runs(bus: Bus, memory: Client, tmp_path: Path, end: type[Message]) -> None:
    (code,) = blocks("python")
    script = tmp_path / "client.py"
    script.write_text(code)
    await _submits_and_sees_the_end((sys.executable, str(script)), bus, memory, end)


@ENDS
async def test_its_typescript_client_runs(
    bus: Bus, memory: Client, node_client: NodeClient, tmp_path: Path, end: type[Message]
) -> None:
    (code,) = blocks("ts")
    (tmp_path / "node_modules").symlink_to(node_client.modules)
    script = tmp_path / "client.mjs"
    script.write_text(code)
    await _submits_and_sees_the_end((node_client.node.node, str(script)), bus, memory, end)


async def _submits_and_sees_the_end(command: tuple[str, ...], bus: Bus, memory: Client, end: type[Message]) -> None:
    process = await run(command, bus.environment("publisher"), None)
    assert process.stdout is not None
    told = (await asyncio.wait_for(process.stdout.readline(), TIMEOUT_S)).decode()
    found = re.search(r"seq\W+(\d+)", told)
    if found is None:
        pytest.fail(f"no acknowledgement: {told} {(await finish(process))[2]}")
    stored = await memory.jetstream().get_msg(subjects.INTAKE, int(found[1]))
    task: Any = json.loads(stored.data or b"")
    assert parse(SubmitTask.TYPE, task)

    golden = json.loads((generate.FOLDER / "examples" / end.TYPE / "full.json").read_text())
    subject = subjects.of(end.TYPE, bus.project)
    await memory.jetstream().publish(subject, json.dumps(golden | {"task_id": task["task_id"]}).encode())
    output, errors = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
    assert (process.returncode, errors) == (0, b"")
    event, _, findings = output.decode().splitlines()[-1].partition(" ")
    assert event == subject.split(".")[-1]
    assert json.loads(findings) == golden["findings"]

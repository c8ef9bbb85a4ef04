"""Burying what the bus gave up on: whatever a message holds, it becomes a dead letter and holds up no other."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from memory_service.house import PERSON, House

from counterpoint.bus.dead_letter import dead_letter
from counterpoint.bus.stream_api import StoredMessage
from counterpoint.guard.policy import policy
from counterpoint.memory.maintenance import advisories
from counterpoint.memory.maintenance.advisories import Advisories
from counterpoint.proto import subjects
from counterpoint.proto.commands import CommandReply, CommandRequest, RetryDeadLetter
from counterpoint.proto.errors import Permanent
from counterpoint.proto.lineage import LineageEvent
from counterpoint.proto.memory import DeadLetter
from counterpoint.proto.messages import MESSAGE_LIMIT_BYTES
from counterpoint.proto.tasks import SubmitTask


class Bus:
    """A stream that holds one message."""

    def __init__(self, subject: str, data: bytes, headers: dict[str, str] | None = None) -> None:
        self._stored = StoredMessage(subject, headers or {}, data, datetime.now(UTC))
        self.deleted: list[tuple[str, int]] = []

    async def stored_message(self, stream: str, sequence: int) -> StoredMessage:
        return self._stored

    connection_number = 1

    async def delete_message(self, stream: str, sequence: int) -> None:
        self.deleted.append((stream, sequence))

    async def consume(self, stream: str, durable: str, handle: Any) -> None:
        advisory = {"stream": subjects.INTAKE, "consumer": "router", "stream_seq": 7}
        await handle(json.dumps(advisory).encode())


async def buried(
    house: House, project: str, data: bytes, headers: dict[str, str] | None = None, message_type: str = SubmitTask.TYPE
) -> dict[str, Any]:
    bus: Any = Bus(subjects.of(message_type, project), data, headers)
    await Advisories(bus, policy(), house.committer).run()
    assert bus.deleted == [(subjects.INTAKE, 7)], "it is a dead letter now, and waits no longer"
    async with house.superuser() as connection:
        kept = await connection.fetch("SELECT body FROM records WHERE project = $1 AND store = 'dead_letters'", project)
    (body,) = (json.loads(row["body"]) for row in kept)
    assert body["code"] == "max_deliveries"
    return dict(body)


@pytest.mark.parametrize(
    "data",
    [
        b'{"description":"\\ud800"}',
        b'{"a":NaN}',
        b'{"a":' * 3000 + b"1" + b"}" * 3000,
        b"\xff",
        b"[1e999]",
        b'{"a":"x\\u0000"}',
        b"x\0",
        b'"\\\\u0000"',
    ],
)
async def test_any_message_becomes_a_dead_letter(house: House, project: str, data: bytes) -> None:
    assert (await buried(house, project, data))["body"]


async def test_a_dead_letter_that_cannot_be_built_is_kept_without_its_body(
    house: House, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unforeseen(subject: str, headers: Any, data: bytes, error: Permanent) -> DeadLetter:
        if data:
            raise KeyError("nobody thought of this")
        return dead_letter(subject, headers, data, error)

    monkeypatch.setattr(advisories, "dead_letter", unforeseen)
    assert (await buried(house, project, b"{}"))["body"] == ""


async def retried(house: House, project: str) -> CommandReply:
    """The reply to a retry of the project's one dead letter."""
    async with house.superuser() as connection:
        letter_id = await connection.fetchval(
            "SELECT id FROM records WHERE project = $1 AND store = 'dead_letters'", project
        )
    command = RetryDeadLetter(id=letter_id, version=1)
    request = CommandRequest(origin=house.standing(project, principal=PERSON), command=command)
    return CommandReply.model_validate_json(await house.door.command("router", request.model_dump_json().encode()))


async def sent(house: House, reply: CommandReply) -> tuple[str, dict[str, Any]]:
    """The type and the data of the message that a retry sent."""
    assert reply.refusal is None, reply.refusal
    assert reply.commit is not None
    message = house.sent[reply.commit.message_ids[0]]
    return message.row.type, json.loads(message.row.body)["data"]


async def test_a_large_message_is_retried_whole(house: House, project: str) -> None:
    event = {"eventType": "FAIL", "note": 'it said "no", and stopped; ' * 8_000}
    data = json.dumps(event).encode()
    assert 200_000 < len(data) < MESSAGE_LIMIT_BYTES
    assert "cut" not in str((await buried(house, project, data, message_type=LineageEvent.TYPE))["problems"])
    assert await sent(house, await retried(house, project)) == (LineageEvent.TYPE, event)


async def test_a_message_that_was_cut_is_not_retried(house: House, project: str) -> None:
    letter = await buried(house, project, b'{"description": "' + b"\x01" * 200_000 + b'"}')
    assert len(letter["body"]) < 200_000
    reply = await retried(house, project)
    assert reply.refusal is not None
    assert (reply.refusal.code, reply.refusal.problems[0].field) == ("conflict", "body")


@pytest.mark.parametrize("version", ["abc", "7"])
async def test_headers_of_our_own_that_a_publisher_sets_do_not_keep_a_retry_from_its_message(
    house: House, project: str, version: str
) -> None:
    headers = {"ce-specversion": "1.0", "ce-id": "e-1", "ce-source": "/ci", "ce-type": "com.example.run.failed"}
    event = {"eventType": "FAIL"}
    await buried(house, project, json.dumps(event).encode(), headers | {"ce-taskversion": version}, LineageEvent.TYPE)
    assert await sent(house, await retried(house, project)) == (LineageEvent.TYPE, event)

"""Burying what the bus gave up on: whatever a message holds, it becomes a dead letter and holds up no other."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from memory_service.house import House

from counterpoint.bus.dead_letter import dead_letter
from counterpoint.bus.stream_api import StoredMessage
from counterpoint.guard.policy import policy
from counterpoint.memory.maintenance import advisories
from counterpoint.memory.maintenance.advisories import Advisories
from counterpoint.proto import subjects
from counterpoint.proto.errors import Permanent
from counterpoint.proto.memory import DeadLetter
from counterpoint.proto.tasks import SubmitTask


class Bus:
    """A stream that holds one message."""

    def __init__(self, subject: str, data: bytes) -> None:
        self._stored = StoredMessage(subject, {}, data, datetime.now(UTC))
        self.deleted: list[tuple[str, int]] = []

    async def stored_message(self, stream: str, sequence: int) -> StoredMessage:
        return self._stored

    connection_number = 1

    async def delete_message(self, stream: str, sequence: int) -> None:
        self.deleted.append((stream, sequence))

    async def consume(self, stream: str, durable: str, handle: Any) -> None:
        advisory = {"stream": subjects.INTAKE, "consumer": "router", "stream_seq": 7}
        await handle(json.dumps(advisory).encode())


async def buried(house: House, project: str, data: bytes) -> dict[str, Any]:
    bus: Any = Bus(subjects.of(SubmitTask.TYPE, project), data)
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

"""Keys, grants and refusals for tests of capabilities."""

from datetime import UTC, datetime, timedelta

import pytest
from biscuit_auth import Biscuit, BlockBuilder

from counterpoint.guard.capabilities import Access, Grant, Keyring, SigningKey, verify
from counterpoint.proto.errors import Denied

NOW = datetime(2025, 11, 20, 12, 0, tzinfo=UTC)


OLD, NEW = SigningKey.generate(1), SigningKey.generate(2)


KEYRING = Keyring([NEW, OLD])


def grant(**changes: object) -> Grant:
    return Grant.model_validate(
        {
            "audience": "developer",
            "project": "web",
            "task": "task-1",
            "message": "message-1",
            "rights": {("attempts", "read"), ("attempts", "append"), ("chunks", "read")},
            "sends": {"counterpoint.task.worked.v1"},
            "clearance": 2,
            "agents": {"developer", "coder-1", "coder-2"},
            "expires_at": NOW + timedelta(hours=1),
        }
        | changes
    )


def refusal(token: str, *requested: Access, keyring: Keyring = KEYRING, now: datetime = NOW, **more: object) -> str:
    with pytest.raises(Denied) as refused:
        verify(keyring, token, requested, now=now, **more)  # type: ignore[arg-type]
    return refused.value.rule


def appended(token: str, block: str) -> str:
    """`token` with a block that its holder wrote by hand."""
    public_key = Keyring([NEW]).newest.public_key
    return Biscuit.from_base64(token, public_key).append(BlockBuilder(block)).to_base64()

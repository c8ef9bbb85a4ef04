"""A long query keeps no other from being answered."""

import asyncio
from typing import Any

import pytest
from memory_service.house import House

from counterpoint.memory.audit import auditor
from counterpoint.memory.audit.check import checked
from counterpoint.memory.query.executor import SLOTS
from counterpoint.proto.ids import new_id


async def test_records_are_read_while_the_log_is_checked(
    house: House, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.delegated(project, new_id())
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def long(asked: Any) -> dict[str, Any]:
        begun.set()
        await go_on.wait()
        return await checked(asked)

    monkeypatch.setattr(auditor, "checked", long)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        checks = [group.create_task(house.verify(project)) for _ in range(SLOTS)]
        await begun.wait()
        assert await house.body(project, "tasks", "none") is None
        go_on.set()
    assert all(check.result()["ok"] for check in checks)

"""The fake memory and the memory service keep the same contract."""

from datetime import UTC, datetime

import pytest
from memory_service.contract import OUTCOME, ROUTED, MemoryContract
from memory_service.fake import FakeMemory
from memory_service.house import House

from counterpoint.client import Memory
from counterpoint.proto.memory import Origin


class FakeDriver:
    """Three services on one fake memory."""

    def __init__(self, project: str) -> None:
        self.project = project
        self._fake = FakeMemory("router", project, datetime.now(UTC))

    def router(self, message_id: str | None = None, *, principal: str | None = None) -> Memory:
        return self._of("router").memory(message_id, principal=principal)

    def lineage(self) -> Memory:
        return self._of("lineage").memory()

    async def manager(self, task_id: str, *, late: bool = False) -> Memory:
        return self._of("manager").memory(type=OUTCOME if late else ROUTED, task_id=task_id)

    def _of(self, caller: str) -> FakeMemory:
        other = FakeMemory(caller, self.project, self._fake.now)
        for name in ("records", "log", "timers", "applied", "_seqs"):
            setattr(other, name, getattr(self._fake, name))
        return other


class ServiceDriver:
    """Three services on the memory service."""

    def __init__(self, house: House, project: str) -> None:
        self.project = project
        self._house = house

    def router(self, message_id: str | None = None, *, principal: str | None = None) -> Memory:
        more = {"message_id": message_id} if message_id else {}
        return self._of("router", self._house.standing(self.project, principal=principal, **more))

    def lineage(self) -> Memory:
        return self._of("lineage", self._house.standing(self.project))

    async def manager(self, task_id: str, *, late: bool = False) -> Memory:
        sent = self._house.reported if late else self._house.routed
        return self._of("manager", self._house.delivery(await sent(self.project, task_id)))

    def _of(self, caller: str, origin: Origin) -> Memory:
        return Memory(self._answer, caller, origin, datetime.now(UTC))

    async def _answer(self, subject: str, body: bytes, timeout_s: float) -> bytes:
        _, caller, kind, *_ = subject.split(".")
        answer: bytes = await getattr(self._house.door, kind)(caller, body)
        return answer


class TestFake(MemoryContract):
    @pytest.fixture
    def memory(self, project: str) -> FakeDriver:
        return FakeDriver(project)


class TestService(MemoryContract):
    @pytest.fixture
    def memory(self, house: House, project: str) -> ServiceDriver:
        return ServiceDriver(house, project)

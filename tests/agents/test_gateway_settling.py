"""A call is settled again after a conflict, with growing pauses, and only for a limited time."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from counterpoint.guard.capabilities import Grant
from counterpoint.guard.policy import policy
from counterpoint.manager.gateway import reservations
from counterpoint.manager.gateway.call_request import CallRequest
from counterpoint.manager.gateway.calls import GenerateCall
from counterpoint.manager.gateway.ledger import CallState, CallUsage
from counterpoint.manager.gateway.reservations import Reservations, settle_delay_s
from counterpoint.proto.errors import Conflict, Transient


@pytest.mark.parametrize("draw", [0.0, 0.4, 1.0])
def test_pauses_after_conflicts_grow_to_a_limit_and_are_spread(draw: float) -> None:
    conflict = Conflict("spend", "t-1")
    delays = [settle_delay_s(conflict, attempt, draw) for attempt in (0, 1, 2, 3, 30, 10_000)]
    assert delays == sorted(delays)
    assert 0 < delays[0] < 0.02
    assert 0.5 <= delays[-1] <= 1.0
    assert settle_delay_s(conflict, 3, 0.0) < settle_delay_s(conflict, 3, 1.0)
    assert settle_delay_s(Transient("busy", retry_after_s=3.0), 0, draw) == 3.0
    assert settle_delay_s(Transient("busy"), 0, draw) == 0.2


class SettlementGateway:
    """A gateway whose settlements conflict `conflicts` times; the delays that it waited."""

    def __init__(self, patch: pytest.MonkeyPatch, conflicts: int) -> None:
        self.delays: list[float] = []
        self.reservations = Reservations(lambda origin: pytest.fail("asked memory"), {}, policy().approvals)
        self._left = conflicts
        patch.setattr(self.reservations._commits, "settle", self._settle)
        patch.setattr(reservations, "settle_delay_s", self._noted)

    async def settle(self, request: CallRequest) -> None:
        await self.reservations.settle(request, "c-1", CallState.SETTLED, CallUsage("unknown"))

    async def _settle(self, pending: Any) -> bool:
        if self._left:
            self._left -= 1
            raise Conflict("spend", "t-1")
        return False

    def _noted(self, error: Any, attempt: int, draw: float) -> float:
        self.delays.append(settle_delay_s(error, attempt, draw))
        return 0.0


def request() -> CallRequest:
    grant = Grant(
        audience="manager",
        project="orders",
        task="t-1",
        message="m-1",
        expires_at=datetime.now(UTC) + timedelta(minutes=5),
        rights=frozenset(),
        sends=frozenset(),
        clearance=1,
        agents=frozenset(),
    )
    return CallRequest("token", grant, "k", GenerateCall("a/model", (("user", "Why?"),), 10), 0.0)


async def test_a_call_that_others_compete_with_is_settled_after_a_pause_for_each_conflict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settling = SettlementGateway(monkeypatch, conflicts=5)
    await settling.settle(request())
    assert len(settling.delays) == 5
    assert all(delay > 0 for delay in settling.delays)


async def test_a_call_that_cannot_be_settled_in_time_is_left_as_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    settling = SettlementGateway(monkeypatch, conflicts=10**9)
    monkeypatch.setattr(reservations, "SETTLE_TIMEOUT_S", -1.0)
    with pytest.raises(Transient, match=r"c-1 could not be settled: .*spend/t-1"):
        await settling.settle(request())

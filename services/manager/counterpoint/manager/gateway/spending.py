"""The spending of a task or job and under the limits of its project, as calls are reserved one after another. Pure."""

from collections.abc import Sequence
from datetime import datetime

from counterpoint.client import put, send
from counterpoint.manager.gateway.ledger import UNKNOWN, CallUsage, SoftLimitReached, SpendRecord
from counterpoint.manager.gateway.limited_spending import LimitedSpending
from counterpoint.proto.approvals import RefusedCall
from counterpoint.proto.errors import Denied
from counterpoint.proto.memory import Item, Outgoing, Write
from counterpoint.proto.tasks import TaskDue


class Spending:
    """Spending of the `scope`, a task or job, whose record is `item`, and under limits. `principal`: whose tool makes
    the calls, none for those of services."""

    def __init__(
        self,
        scope: str,
        spend: SpendRecord,
        item: Item | None,
        limited: Sequence[LimitedSpending],
        principal: str | None,
        now: datetime,
    ) -> None:
        self._scope = scope
        self._spend = spend
        self._item = item
        self._limits = [(limit, item) for limit, _, item in limited]
        self._spent = [spent for _, spent, _ in limited]
        self._of_task = spend.task_id is not None
        self._principal = principal
        self._now = now
        self._is_refused = self._is_reserved = False

    def reserve(self, estimate: CallUsage, *, deferrable: bool) -> None:
        """Reserve the estimate of a call. Raises `SoftLimitReached` for a `deferrable` one, and `Denied` `budget`."""
        over = [spent for spent in self._spent if spent.exceeds_soft(estimate)]
        if over and deferrable:
            raise SoftLimitReached(over[0].warning)
        try:
            reserved, after = self._spend.with_reserved(estimate), list[SpendRecord]()
            for spent in self._spent:
                more = spent.with_reserved(estimate)
                if spent in over and not spent.warned and self._of_task:
                    more = more.model_copy(update={"warned": True})
                    reserved = reserved.model_copy(update={"warnings": (*reserved.warnings, more.warning)})
                after.append(more)
        except Denied:
            self._refuse(estimate)
            raise
        reserved = reserved.model_copy(update={"tool_refused" if self._principal else "refused": None})
        self._spend, self._spent, self._is_reserved, self._is_refused = reserved, after, True, False

    def _refuse(self, estimate: CallUsage) -> None:
        """Note the first call that a limit refused the task: a person may lift the limit."""
        field = "tool_refused" if self._principal else "refused"
        asks_again = self._principal and self._spend.ask_again_at and self._spend.ask_again_at <= self._now
        if self._of_task and (getattr(self._spend, field) is None or asks_again):
            usd = None if estimate.usd == UNKNOWN else estimate.usd
            refused = RefusedCall(usd=usd, tokens=estimate.tokens, principal=self._principal)
            again = {"ask_again_at": None} if asks_again else {}
            self._spend = self._spend.model_copy(update={field: refused, **again})
            self._is_refused = True

    def messages(self) -> tuple[Outgoing, ...]:
        """Return what the manager is told: that a limit refused a call of a tool. A result of the developer says so
        itself."""
        if not (self._is_refused and self._principal):
            return ()
        return (send(TaskDue(task_id=self._scope, timer="tool_refused")),)

    def writes(self) -> tuple[Write, ...]:
        """Return the records that have changed."""
        if not self._is_reserved:
            return (put("spend", self._scope, self._spend, existing=self._item),) if self._is_refused else ()
        limits = zip(self._limits, self._spent, strict=True)
        return (
            *(put("spend", limit.spend_id, spent, existing=item) for (limit, item), spent in limits),
            put("spend", self._scope, self._spend, existing=self._item),
        )

"""The spending of a task or job and under the limits of its project, as calls are reserved one after another. Pure."""

from collections.abc import Sequence

from counterpoint.client import put
from counterpoint.manager.gateway.ledger import UNKNOWN, CallUsage, SoftLimitReached, SpendRecord
from counterpoint.manager.gateway.limited_spending import LimitedSpending
from counterpoint.proto.approvals import RefusedCall
from counterpoint.proto.errors import Denied
from counterpoint.proto.memory import Item, Write


class Spending:
    """Spending of the `scope`, a task or job, whose record is `item`, and under limits."""

    def __init__(self, scope: str, spend: SpendRecord, item: Item | None, limited: Sequence[LimitedSpending]) -> None:
        self._scope = scope
        self._spend = spend
        self._item = item
        self._limits = [(limit, item) for limit, _, item in limited]
        self._spent = [spent for _, spent, _ in limited]
        self._of_task = spend.task_id is not None
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
        self._spend, self._spent, self._is_reserved = reserved, after, True

    def _refuse(self, estimate: CallUsage) -> None:
        """Note the first call that a limit refused the task: a person may lift the limit."""
        if self._of_task and self._spend.refused is None:
            usd = None if estimate.usd == UNKNOWN else estimate.usd
            refused = RefusedCall(usd=usd, tokens=estimate.tokens)
            self._spend = self._spend.model_copy(update={"refused": refused})
            self._is_refused = True

    def writes(self) -> tuple[Write, ...]:
        """Return the records that have changed."""
        if not self._is_reserved:
            return (put("spend", self._scope, self._spend, existing=self._item),) if self._is_refused else ()
        limits = zip(self._limits, self._spent, strict=True)
        return (
            *(put("spend", limit.spend_id, spent, existing=item) for (limit, item), spent in limits),
            put("spend", self._scope, self._spend, existing=self._item),
        )

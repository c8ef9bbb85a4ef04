"""The limits that apply to a call, and the records of spending that they are counted in. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from counterpoint.manager.gateway.ledger import SpendRecord
from counterpoint.proto.limits import LimitScope, StoredLimit, bounds, spend_record_id
from counterpoint.proto.memory import Costs, CostSum


@dataclass(frozen=True, slots=True)
class AppliedLimit:
    """A limit on one project, agent, session or task, in the period from `since` to `until`."""

    limit: StoredLimit
    name: str
    since: datetime | None
    until: datetime | None

    @property
    def spend_id(self) -> str:
        """Return the id of the record in the store `spend`."""
        return spend_record_id(self.limit, self.name, self.since)

    @property
    def costs_so_far(self) -> Costs:
        """Return the query of the calls of the period, for a limit that was set after they were made."""
        return Costs(by=self.limit.scope, key=self.name, since=self.since, until=self.until)

    def opened(self, so_far: CostSum) -> SpendRecord:
        """Return the first record of spending. Calls under way count as spent: they settle without this record."""
        return SpendRecord(
            spent_usd=so_far.usd + so_far.reserved_usd,
            spent_tokens=so_far.tokens + so_far.reserved_tokens,
            calls=so_far.calls + so_far.under_way,
            unpriced=so_far.unpriced,
            unknown=so_far.unknown,
        )

    def with_limit(self, spend: SpendRecord) -> SpendRecord:
        """Return a record of spending under the limit as it is now."""
        period = {"day": " for a day", "month": " for a month", "total": ""}[self.limit.period]
        until = f", until {self.until:%Y-%m-%d %H:%M} UTC" if self.until else ""
        described = f"the limit of {self.limit.scope} {self.name}{period}{until}"
        limit = {
            "limit": described,
            "limit_usd": self.limit.usd,
            "limit_tokens": self.limit.tokens,
            "soft_usd": self.limit.soft_usd,
            "soft_tokens": self.limit.soft_tokens,
        }
        # A lift is of the limit that was shown. A limit set afterwards holds as it is.
        new = {"lifted_usd": Decimal(0), "lifted_tokens": 0, "warned": False}
        return spend.model_copy(
            update={**limit, **({} if spend.limit_at == self.limit.at else new), "limit_at": self.limit.at}
        )


def applied_limits(
    limits: Iterable[StoredLimit], names: Mapping[LimitScope, str | None], now: datetime
) -> tuple[AppliedLimit, ...]:
    """Return the limits that apply to a call, by the names of its project, agent, session and task."""
    return tuple(
        AppliedLimit(limit, name, *bounds(limit.period, now))
        for limit in limits
        if (name := names.get(limit.scope)) is not None and limit.name in (None, name)
    )

"""Lifts: the amounts by which limits would have to be lifted for a refused call. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_UP, Decimal

from counterpoint.manager.gateway.ledger import SpendRecord
from counterpoint.proto.approvals import Lift, RefusedCall
from counterpoint.proto.memory import Item

CALLS = 4
"""Number of calls like the refused one that a lift pays for: an answer takes up to that many."""
_CENT = Decimal("0.01")
_TOKENS = 1000
_BUDGET = "the budget of the task"


@dataclass(frozen=True, slots=True)
class CountedSpend:
    """Spending under one limit, or of the task, with its record if there is one."""

    spend_id: str
    spend: SpendRecord
    item: Item | None

    def lifted(self, lift: Lift) -> SpendRecord:
        """Return the spending with its limit lifted."""
        return self.spend.model_copy(
            update={
                "lifted_usd": self.spend.lifted_usd + (lift.by_usd or 0),
                "lifted_tokens": self.spend.lifted_tokens + (lift.by_tokens or 0),
            }
        )

    def is_as_shown(self, lift: Lift) -> bool:
        """Whether the limit is still the one that the lift states."""
        usd = lift.by_usd is None or lift.cap_usd == self.spend.cap_usd
        tokens = lift.by_tokens is None or lift.cap_tokens == self.spend.cap_tokens
        return usd and tokens and lift.limit == _described(self.spend)


def lifts_for(refused: RefusedCall, counted: Iterable[CountedSpend]) -> tuple[Lift, ...]:
    """Return a lift of each limit that does not cover the call, enough for `CALLS` of them, rounded up.

    Without a known price no amount covers the call under a limit in US dollars, so nothing is lifted.
    """
    counted = list(counted)
    if refused.usd is None and any(each.spend.cap_usd is not None for each in counted):
        return ()
    return tuple(lift for each in counted if (lift := _lift(refused, each)) is not None)


def _lift(refused: RefusedCall, counted: CountedSpend) -> Lift | None:
    spend, amounts = counted.spend, dict[str, Decimal | int]()
    if spend.cap_usd is not None and refused.usd is not None and spend.used_usd + refused.usd > spend.cap_usd:
        missing = spend.used_usd + CALLS * refused.usd - spend.cap_usd
        by_usd = missing.quantize(_CENT, ROUND_UP)
        amounts |= {"cap_usd": spend.cap_usd, "used_usd": spend.used_usd, "by_usd": by_usd}
    if spend.cap_tokens is not None and spend.used_tokens + refused.tokens > spend.cap_tokens:
        missing_tokens = spend.used_tokens + CALLS * refused.tokens - spend.cap_tokens
        by_tokens = -(-missing_tokens // _TOKENS) * _TOKENS
        amounts |= {"cap_tokens": spend.cap_tokens, "used_tokens": spend.used_tokens, "by_tokens": by_tokens}
    if not amounts:
        return None
    return Lift.model_validate({"spend_id": counted.spend_id, "limit": _described(spend), **amounts})


def _described(spend: SpendRecord) -> str:
    return spend.limit or _BUDGET

"""The ledger of calls outside: what each task or job has spent and set aside, and what became of each call (row E4).

Decisions alone: a call is reserved at its estimate before it is made, and settled at what it took, released when the
provider did nothing, or left at its estimate when nobody knows. An unknown price is `unknown`, never 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_UP, Decimal
from typing import Any, Literal

from counterpoint.proto.errors import Denied
from counterpoint.proto.messages import Shape, Time, Usd
from counterpoint.proto.tasks import Budget

UNKNOWN: Literal["unknown"] = "unknown"
Amount = Usd | Literal["unknown"]
"""US dollars, or that nobody knows how many."""
State = Literal["reserved", "settled", "released", "unknown"]
_NANO = Decimal("0.000000001")


def dollars(amount: float | Decimal) -> Decimal:
    """An amount as it is kept: rounded up to nine places."""
    return Decimal(str(amount)).quantize(_NANO, ROUND_UP)


@dataclass(frozen=True, slots=True)
class Taken:
    """What a call takes, or is thought to take at most."""

    usd: Decimal | Literal["unknown"]
    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Both kinds."""
        return self.input_tokens + self.output_tokens

    @property
    def known_usd(self) -> Decimal:
        """What is known of the price; what is not known adds nothing to a sum, but is counted beside it."""
        return Decimal(0) if self.usd == UNKNOWN else self.usd


class Spend(Shape):
    """What a task, or a job of memory's own, may spend, has spent, and has set aside for calls under way.

    `unpriced` calls had a price that nobody knows: they are in no sum of dollars. `unknown` ones have an outcome that
    nobody knows: they count at their estimate.
    """

    task_id: str | None = None
    limit_usd: Usd | None = None
    limit_tokens: int | None = None
    spent_usd: Usd = Decimal(0)
    spent_tokens: int = 0
    reserved_usd: Usd = Decimal(0)
    reserved_tokens: int = 0
    calls: int = 0
    unpriced: int = 0
    unknown: int = 0

    @classmethod
    def begun(cls, task_id: str | None, budget: Budget | None) -> "Spend":
        """Nothing spent yet."""
        return cls(
            task_id=task_id,
            limit_usd=budget.usd if budget else None,
            limit_tokens=budget.tokens if budget else None,
        )

    def with_reserved(self, estimate: Taken) -> "Spend":
        """With a call set aside. Raises `Denied` `budget` when that, with all before, could be more than allowed."""
        if self.limit_usd is not None:
            if estimate.usd == UNKNOWN:
                raise Denied("budget", "a model whose price is known, where the budget is in USD")
            left = self.limit_usd - self.spent_usd - self.reserved_usd
            if estimate.usd > left:
                raise Denied("budget", f"{estimate.usd:f} USD for this call at most, of the {left:f} that are left")
        if self.limit_tokens is not None:
            left_tokens = self.limit_tokens - self.spent_tokens - self.reserved_tokens
            if estimate.tokens > left_tokens:
                raise Denied("budget", f"{estimate.tokens} tokens for this call at most, of the {left_tokens} left")
        return self.model_copy(
            update={
                "reserved_usd": self.reserved_usd + estimate.known_usd,
                "reserved_tokens": self.reserved_tokens + estimate.tokens,
            }
        )

    def with_settled(self, estimate: Taken, state: State, taken: Taken) -> "Spend":
        """With a call that was set aside come to its end."""
        return self.model_copy(
            update={
                "reserved_usd": self.reserved_usd - estimate.known_usd,
                "reserved_tokens": self.reserved_tokens - estimate.tokens,
                "spent_usd": self.spent_usd + taken.known_usd,
                "spent_tokens": self.spent_tokens + taken.tokens,
                "calls": self.calls + (state != "released"),
                "unpriced": self.unpriced + (state != "released" and taken.usd == UNKNOWN),
                "unknown": self.unknown + (state == "unknown"),
            }
        )


class ModelCall(Shape):
    """One call: what was asked for, by its hash, at which estimate, what it took, and the response where it is kept.

    `holder` is the process that makes it, `deadline` when that one has given up at the latest.
    """

    task_id: str | None = None
    key: str
    kind: Literal["generate", "embed", "search"]
    model: str
    request_sha256: str
    state: State
    holder: str
    reserved_at: Time
    deadline: Time
    estimate_usd: Amount
    estimate_input_tokens: int
    estimate_output_tokens: int
    cost_usd: Amount | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    settled_at: Time | None = None
    response: dict[str, Any] | None = None
    error: str | None = None

    @property
    def estimate(self) -> Taken:
        """What was set aside."""
        return Taken(self.estimate_usd, self.estimate_input_tokens, self.estimate_output_tokens)

    @property
    def taken(self) -> Taken:
        """What it took, once it has ended."""
        usd = self.estimate_usd if self.cost_usd is None else self.cost_usd
        return Taken(usd, self.input_tokens or 0, self.output_tokens or 0)

    def ended(
        self,
        state: State,
        taken: Taken,
        at: Time,
        *,
        response: Mapping[str, Any] | None = None,
        error: str | None = None,
    ) -> "ModelCall":
        """The call at its end."""
        return self.model_copy(
            update={
                "state": state,
                "cost_usd": taken.usd,
                "input_tokens": taken.input_tokens,
                "output_tokens": taken.output_tokens,
                "settled_at": at,
                "response": None if response is None else dict(response),
                "error": error,
            }
        )

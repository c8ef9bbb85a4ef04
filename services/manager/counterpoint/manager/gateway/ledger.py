"""The ledger of provider calls: spending and reservations by task or job, and the record of each call.

Pure. A call is reserved at its estimate before it is made. It is settled at its usage, released when the provider did
nothing, or counted at its estimate when its outcome is unknown. An unknown price is `unknown`, never 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_UP, Decimal
from enum import StrEnum
from typing import Any, Literal

from counterpoint.proto.approvals import RefusedCall
from counterpoint.proto.errors import CounterpointError, Denied, ErrorCode
from counterpoint.proto.messages import Shape, Time, Usd
from counterpoint.proto.tasks import Budget

UNKNOWN: Literal["unknown"] = "unknown"
Amount = Usd | Literal["unknown"]
"""US dollars, or an unknown price."""
_NANO = Decimal("0.000000001")


class SoftLimitReached(CounterpointError):
    """The call exceeds a soft limit, and a cheaper model may make it."""


class CallState(StrEnum):
    """State of a call: reserved, then settled, released (the provider did nothing), or of unknown outcome."""

    RESERVED = "reserved"
    SETTLED = "settled"
    RELEASED = "released"
    UNKNOWN = "unknown"


def dollars(amount: float | Decimal) -> Decimal:
    """Return an amount rounded up to nine decimals, as stored."""
    return Decimal(str(amount)).quantize(_NANO, ROUND_UP)


@dataclass(frozen=True, slots=True)
class CallUsage:
    """Cost and tokens of a call, or their estimate."""

    usd: Decimal | Literal["unknown"]
    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Input and output tokens."""
        return self.input_tokens + self.output_tokens

    @property
    def known_usd(self) -> Decimal:
        """The price, or 0 if it is unknown; unknown prices are counted separately."""
        return Decimal(0) if self.usd == UNKNOWN else self.usd


class SpendRecord(Shape):
    """Limits, spending and reservations of a task, of a job of the memory service, or under a limit of the project.

    `limit` describes the latter, `limit_at` is when it was set. `lifted_*` was added to the limit by approvals.
    `refused` is the first call that a limit refused the task since the last reservation. `tool_refused` is the same of
    tools of principals; `tool_approval` asks about it, and none asks again before `ask_again_at`. `warned`: the soft
    limit was passed and somebody was warned. `warnings` of a task are those of its calls that the manager has not
    passed on yet. `unpriced` calls had an unknown price and are in no sum of dollars. `unknown` calls had an unknown
    outcome and count at their estimate.
    """

    task_id: str | None = None
    limit: str | None = None
    limit_usd: Usd | None = None
    limit_tokens: int | None = None
    limit_at: Time | None = None
    lifted_usd: Usd = Decimal(0)
    lifted_tokens: int = 0
    soft_usd: Usd | None = None
    soft_tokens: int | None = None
    warned: bool = False
    warnings: tuple[str, ...] = ()
    refused: RefusedCall | None = None
    tool_refused: RefusedCall | None = None
    tool_approval: str | None = None
    ask_again_at: Time | None = None
    spent_usd: Usd = Decimal(0)
    spent_tokens: int = 0
    reserved_usd: Usd = Decimal(0)
    reserved_tokens: int = 0
    calls: int = 0
    unpriced: int = 0
    unknown: int = 0

    @classmethod
    def initial(cls, task_id: str | None, budget: Budget | None) -> "SpendRecord":
        """Return the record before the first call, with the limits of `budget`."""
        return cls(
            task_id=task_id,
            limit_usd=budget.usd if budget else None,
            limit_tokens=budget.tokens if budget else None,
        )

    @property
    def cap_usd(self) -> Decimal | None:
        """The limit in US dollars with what it was lifted by."""
        return None if self.limit_usd is None else self.limit_usd + self.lifted_usd

    @property
    def cap_tokens(self) -> int | None:
        """The limit in tokens with what it was lifted by."""
        return None if self.limit_tokens is None else self.limit_tokens + self.lifted_tokens

    @property
    def used_usd(self) -> Decimal:
        """US dollars spent and reserved."""
        return self.spent_usd + self.reserved_usd

    @property
    def used_tokens(self) -> int:
        """Tokens spent and reserved."""
        return self.spent_tokens + self.reserved_tokens

    def exceeds_soft(self, estimate: CallUsage) -> bool:
        """Whether a call takes the spending over the soft limit. An unknown price may."""
        usd = self.soft_usd is not None and (
            estimate.usd == UNKNOWN or self.used_usd + estimate.known_usd > self.soft_usd
        )
        return usd or (self.soft_tokens is not None and self.used_tokens + estimate.tokens > self.soft_tokens)

    def of_job(self, budget: Budget | None, tokens: int | None) -> "SpendRecord":
        """Return the record of a job under the budget of its token, or else a limit of tokens."""
        if budget is None:
            return self.model_copy(update={"limit_tokens": tokens})
        limits = {"limit_usd": budget.usd, "limit_tokens": budget.tokens}
        return self.model_copy(update={"limit": "the budget of the replay", **limits})

    @property
    def warning(self) -> str:
        """The soft limit and what was used of it, in words."""
        amounts = [f"{self.used_usd:f} of {self.soft_usd:f} USD"] if self.soft_usd is not None else []
        amounts += [f"{self.used_tokens} of {self.soft_tokens} tokens"] if self.soft_tokens is not None else []
        return f"the soft part of {self.limit} is reached: {' and '.join(amounts)} are used"

    def with_reserved(self, estimate: CallUsage) -> "SpendRecord":
        """Add a reservation. Raises `Denied` `budget` when it could exceed a limit."""
        budget = self.limit or "the budget of the task"
        if self.cap_usd is not None:
            if estimate.usd == UNKNOWN:
                raise Denied(ErrorCode.BUDGET, f"a model whose price is known, because {budget} is in USD")
            remaining_usd = max(self.cap_usd - self.used_usd, Decimal(0))
            if estimate.usd > remaining_usd:
                raise Denied(
                    ErrorCode.BUDGET,
                    f"{estimate.usd:f} USD at most for this call; {remaining_usd:f} USD of {budget} are left",
                )
        if self.cap_tokens is not None:
            remaining = max(self.cap_tokens - self.used_tokens, 0)
            if estimate.tokens > remaining:
                raise Denied(
                    ErrorCode.BUDGET,
                    f"{estimate.tokens} tokens at most for this call; {remaining} of {budget} are left",
                )
        return self.model_copy(
            update={
                "reserved_usd": self.reserved_usd + estimate.known_usd,
                "reserved_tokens": self.reserved_tokens + estimate.tokens,
            }
        )

    def with_settled(self, estimate: CallUsage, state: CallState, usage: CallUsage) -> "SpendRecord":
        """Replace a reservation by the usage of the ended call."""
        return self.model_copy(
            update={
                "reserved_usd": self.reserved_usd - estimate.known_usd,
                "reserved_tokens": self.reserved_tokens - estimate.tokens,
                "spent_usd": self.spent_usd + usage.known_usd,
                "spent_tokens": self.spent_tokens + usage.tokens,
                "calls": self.calls + (state is not CallState.RELEASED),
                "unpriced": self.unpriced + (state is not CallState.RELEASED and usage.usd == UNKNOWN),
                "unknown": self.unknown + (state is CallState.UNKNOWN),
            }
        )


class ModelCallRecord(Shape):
    """One call: hash of its request, estimate, usage, and the response where it is stored.

    `agent` is the service that asked for the call, `limited_by` the records of the limits that it counts against.
    `holder` is the process that makes it; after `deadline` that process has given up.
    """

    task_id: str | None = None
    session_id: str | None = None
    agent: str | None = None
    key: str
    kind: Literal["generate", "embed", "search"]
    model: str
    request_sha256: str
    state: CallState
    holder: str
    limited_by: tuple[str, ...] = ()
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
    def estimate(self) -> CallUsage:
        """Usage that was reserved."""
        return CallUsage(self.estimate_usd, self.estimate_input_tokens, self.estimate_output_tokens)

    @property
    def usage(self) -> CallUsage:
        """Usage of the ended call."""
        usd = self.estimate_usd if self.cost_usd is None else self.cost_usd
        return CallUsage(usd, self.input_tokens or 0, self.output_tokens or 0)

    def ended(
        self,
        state: CallState,
        usage: CallUsage,
        at: Time,
        *,
        response: Mapping[str, Any] | None = None,
        error: str | None = None,
    ) -> "ModelCallRecord":
        """Return the call in its final state."""
        return self.model_copy(
            update={
                "state": state,
                "cost_usd": usage.usd,
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "settled_at": at,
                "response": None if response is None else dict(response),
                "error": error,
            }
        )

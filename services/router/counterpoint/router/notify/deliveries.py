"""Deliveries: the record of what one receiver is told, and its transitions. Pure.

A webhook has one delivery per event. All other kinds have one per incident, whose revisions replace each other, and one
per digest.
"""

import hashlib
from datetime import datetime, timedelta
from typing import Any, Literal

from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.ids import derived_id
from counterpoint.proto.messages import ProjectName, Shape, Time
from counterpoint.router.notify.digest import IncidentDigest
from counterpoint.router.notify.summary import IncidentSummary

STORE = "webhook_deliveries"
DELAYS_S: tuple[float, ...] = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
"""Delays before each further attempt, those that Standard Webhooks proposes: 75 hours in total."""
ATTEMPTS = len(DELAYS_S) + 1
RETRY_AFTER_LIMIT_S = 86_400.0
SPREAD = 0.2
"""Share of a delay that is spread by the id of the delivery, so that a receiver that returns is not flooded."""

DeliveryState = Literal["pending", "calling", "delivered", "dead"]


class Delivery(Shape):
    """One delivery. `turn` counts planned calls, `attempt` those since the last success, `revision` the contents.
    `severity` and `owner` are those of the incident at its beginning.

    A digest is about what changed between `digest_since` and `digest_until`, when it is due. `holder` makes the call
    until `held_until`. `ref` identifies the message at the receiver, to update it.
    `last_error` names the fault without the receiver's address.
    """

    receiver: str
    project: ProjectName
    task_id: str | None = None
    severity: str = "normal"
    owner: str | None = None
    state: DeliveryState = "pending"
    turn: int = 1
    attempt: int = 1
    revision: int = 1
    sent_revision: int = 0
    event: dict[str, Any] | None = None
    incident: IncidentSummary | None = None
    digest: IncidentDigest | None = None
    digest_since: Time | None = None
    digest_until: Time | None = None
    ref: dict[str, str] | None = None
    thread: dict[str, str] | None = None
    holder: str | None = None
    held_until: Time | None = None
    last_error: str | None = None
    created_at: Time
    delivered_at: Time | None = None

    @property
    def is_open(self) -> bool:
        """Whether a call is planned or under way."""
        return self.state in ("pending", "calling")

    @property
    def is_untold(self) -> bool:
        """Whether no call can have reached the receiver yet."""
        return self.sent_revision == 0 and self.attempt == 1 and self.holder is None

    def revised(self, incident: IncidentSummary) -> "Delivery":
        """Return the delivery with a new content; a new turn begins unless a call is planned already."""
        known = {"incident": incident, "revision": self.revision + 1}
        if self.is_open:
            return self.model_copy(update=known)
        return self.model_copy(update=known | {"state": "pending", "turn": self.turn + 1, "attempt": 1})

    def held(self, holder: str, until: datetime) -> "Delivery":
        """Return the delivery while `holder` makes the call."""
        return self.model_copy(update={"state": "calling", "holder": holder, "held_until": until})

    def delivered(self, revision: int, ref: dict[str, str] | None, now: datetime) -> "Delivery":
        """Return the delivery after its receiver accepted `revision`; a later one is due at once."""
        more = self.revision > revision
        return self.model_copy(
            update={
                "state": "pending" if more else "delivered",
                "turn": self.turn + more,
                "attempt": 1,
                "sent_revision": revision,
                "ref": ref or self.ref,
                "holder": None,
                "held_until": None,
                "last_error": None,
                "delivered_at": now,
            }
        )

    def dropped(self) -> "Delivery":
        """Return the delivery of which the receiver is told nothing, unless its content changes."""
        return self.model_copy(update={"state": "delivered"})

    def failed(self, error: str) -> "Delivery":
        """Return the delivery with its next attempt planned."""
        return self._again(error, self.attempt + 1)

    def deferred(self) -> "Delivery":
        """Return the delivery with the same attempt planned for later."""
        return self._again(self.last_error, self.attempt)

    def without_message(self, error: str) -> "Delivery | None":
        """Return the delivery that tells its receiver by a new message, without the one that is gone: the message to
        update, else the one to reply to. None if it has neither."""
        if self.ref is None and self.thread is None:
            return None
        gone = {"ref": None} if self.ref is not None else {"thread": None}
        return self._again(error, self.attempt).model_copy(update=gone)

    def died(self, error: str) -> "Delivery":
        """Return the delivery after its last attempt."""
        return self.model_copy(update={"state": "dead", "holder": None, "held_until": None, "last_error": error})

    def _again(self, error: str | None, attempt: int) -> "Delivery":
        return self.model_copy(
            update={
                "state": "pending",
                "turn": self.turn + 1,
                "attempt": attempt,
                "holder": None,
                "held_until": None,
                "last_error": error,
            }
        )


def conversation_id(receiver: str, task_id: str) -> str:
    """Return the id of the delivery of an incident to a receiver."""
    return derived_id("conversation", receiver, task_id)


def retry_delay(delivery_id: str, attempt: int, retry_after_s: float | None = None) -> timedelta | None:
    """Return the delay after the failed `attempt`, at least what the receiver asked for; None after the last one."""
    if attempt >= ATTEMPTS:
        return None
    delay_s = DELAYS_S[attempt - 1]
    if retry_after_s is not None:
        delay_s = max(delay_s, min(retry_after_s, RETRY_AFTER_LIMIT_S))
    return spread(delivery_id, delay_s)


def spread(delivery_id: str, delay_s: float) -> timedelta:
    """Return a delay lengthened by up to `SPREAD`, always the same for one delivery."""
    share = int.from_bytes(hashlib.sha256(delivery_id.encode()).digest()[:4]) / 2**32
    return timedelta(seconds=delay_s * (1 + SPREAD * share))


def undeliverable(what: str, problem: str) -> Permanent:
    """Return the error that dead-letters a delivery, from where a person can retry it."""
    return Permanent(ErrorCode.REFUSED, (Problem(field=what, problem=problem),))

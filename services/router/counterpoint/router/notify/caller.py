"""The call of one delivery: its body by the kind of receiver, and the outcome by the receiver's answer."""

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

import httpcore

from counterpoint.router.notify.bodies.alerts import alertmanager_call, pagerduty_call
from counterpoint.router.notify.bodies.cloud_event import cloud_event_call
from counterpoint.router.notify.bodies.datahub import candidates, datahub_call, exists, exists_call, incident_urn
from counterpoint.router.notify.bodies.mail import mail_of, send_mail
from counterpoint.router.notify.bodies.slack import slack_call, slack_digest_call, slack_result
from counterpoint.router.notify.bodies.teams import teams_call, teams_digest_call
from counterpoint.router.notify.deliveries import RETRY_AFTER_LIMIT_S, Delivery
from counterpoint.router.notify.outbound import Answer, BlockedAddress, Call, exchange
from counterpoint.router.notify.receivers import Receiver

_RETRIED = frozenset({408, 409, 425, 429})
"""Client errors that may pass; the other ones do not."""


@dataclass(frozen=True, slots=True)
class ReceiverReply:
    """The reply to the call that told `revision`: accepted, or an `error` that names no address.

    A `final` error is not retried. `gone`: the message to update, or to reply to, no longer exists.
    """

    error: str | None = None
    revision: int = 0
    final: bool = False
    gone: bool = False
    ref: dict[str, str] | None = None
    retry_after_s: float | None = None


class Caller:
    """Makes the calls of deliveries, each within `timeout_s`."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s

    async def call(self, receiver: Receiver, delivery_id: str, delivery: Delivery, now: datetime) -> ReceiverReply:
        """Tell the receiver, and return the outcome."""
        outcome = await self._call(receiver, delivery_id, delivery, now)
        return replace(outcome, revision=delivery.revision)

    async def _call(self, receiver: Receiver, delivery_id: str, delivery: Delivery, now: datetime) -> ReceiverReply:
        try:
            if receiver.kind == "email":
                mail = mail_of(receiver, delivery_id, delivery, now)
                await send_mail(receiver, mail, self.timeout_s)
                return ReceiverReply()
            if receiver.kind == "datahub":
                async with asyncio.timeout(self.timeout_s):
                    return await self._datahub(receiver, delivery, now)
            call = request_of(receiver, delivery_id, delivery, now)
            return outcome_of(receiver, await exchange(call, receiver.private, self.timeout_s))
        except BlockedAddress as refused:
            return ReceiverReply(str(refused), final=True)
        except TimeoutError:
            return ReceiverReply(f"no answer within {self.timeout_s:g} s")
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError) as error:
            return ReceiverReply(f"the call failed: {type(error).__name__}")

    async def _datahub(self, receiver: Receiver, delivery: Delivery, now: datetime) -> ReceiverReply:
        """Write an incident to the entity that DataHub knows. Without one nothing is written, which is no error."""
        incident = delivery.incident
        assert incident is not None
        entity = (delivery.ref or {}).get("entity")
        for urn in () if entity else candidates(receiver, incident):
            answer = await exchange(exists_call(receiver, urn), receiver.private, self.timeout_s)
            reply = outcome_of(receiver, answer)
            if reply.error is not None:
                return reply
            known = exists(answer)
            if known is None:
                return ReceiverReply("the answer to entityExists is not true or false")
            if known:
                entity = urn
                break
        if entity is None:
            return ReceiverReply()
        call = datahub_call(receiver, delivery, incident, entity, now)
        reply = outcome_of(receiver, await exchange(call, receiver.private, self.timeout_s))
        return reply if reply.error else replace(reply, ref={"entity": entity, "urn": incident_urn(incident)})


def request_of(receiver: Receiver, delivery_id: str, delivery: Delivery, now: datetime) -> Call:
    """Return the request that tells a receiver by HTTP."""
    incident, digest = delivery.incident, delivery.digest
    if receiver.kind == "webhook":
        return cloud_event_call(receiver, delivery_id, delivery, now)
    if digest is not None:
        return teams_digest_call(receiver, digest) if receiver.kind == "teams" else slack_digest_call(receiver, digest)
    assert incident is not None
    match receiver.kind:
        case "slack":
            return slack_call(receiver, delivery, incident)
        case "teams":
            return teams_call(receiver, incident)
        case "pagerduty":
            return pagerduty_call(receiver, incident)
        case "alertmanager":
            return alertmanager_call(receiver, delivery, incident, now)
        case "email" | "datahub":
            raise ValueError(f"{receiver.kind} is not told by one request")
        case _:
            assert_never(receiver.kind)


def outcome_of(receiver: Receiver, answer: Answer) -> ReceiverReply:
    """Return the outcome by the answer. 410 and other client errors are final, as is a redirect."""
    status = answer.status
    if 200 <= status < 300:
        if receiver.kind != "slack":
            return ReceiverReply()
        ref, error, kind = slack_result(receiver, answer)
        return ReceiverReply(error, final=kind == "final", gone=kind == "gone", ref=ref)
    if 300 <= status < 400:
        return ReceiverReply(f"the receiver redirects (HTTP {status}), which is not followed", final=True)
    retry_after_s = answer.retry_after_s
    if retry_after_s is not None:
        retry_after_s = min(retry_after_s, RETRY_AFTER_LIMIT_S)
    final = 400 <= status < 500 and status not in _RETRIED
    return ReceiverReply(f"HTTP {status}", final=final, retry_after_s=retry_after_s)

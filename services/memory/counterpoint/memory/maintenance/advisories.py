"""Advisories of the bus: a message that reached its delivery limit becomes a dead letter."""

import json
from dataclasses import replace

import structlog

from counterpoint.bus.codec import envelope
from counterpoint.bus.connection import Connection
from counterpoint.bus.dead_letter import dead_letter
from counterpoint.bus.stream_api import StoredMessage
from counterpoint.guard.policy import Policy
from counterpoint.memory.access import diode
from counterpoint.memory.commit.committer import Committer
from counterpoint.memory.commit.planner import plan_commit
from counterpoint.memory.provenance.read_sets import ReadSet
from counterpoint.memory.record.stamps import UNTRUSTED, Provenance
from counterpoint.proto import subjects
from counterpoint.proto.errors import Away, ErrorCode, Permanent, Transient
from counterpoint.proto.memory import Commit, Origin
from counterpoint.proto.messages import utc_now

log = structlog.get_logger()

_HIGHEST_FENCE = 1 << 62
"""Fence above that of every delivery."""


class Advisories:
    """Consumes the advisories of messages that reached their delivery limit."""

    def __init__(self, connection: Connection, policy: Policy, committer: Committer) -> None:
        self._connection = connection
        self._policy = policy
        self._committer = committer

    async def run(self) -> None:
        """Turn such messages into dead letters, for ever."""
        await self._connection.consume(subjects.ADVISORIES, "memory", self._handle)

    async def _handle(self, advisory: bytes) -> None:
        """Turn the message of an advisory into a dead letter, without its body if it fails with it, so that the next
        advisory is not delayed. Raises `Transient`.

        The message is deleted from the intake, which would count it as waiting for ever. After a reconnection its
        sequence number may belong to another message, so it is not deleted then.
        """
        connection_number = self._connection.connection_number
        body = json.loads(advisory)
        stream, consumer, sequence = body["stream"], body["consumer"], body["stream_seq"]
        stored = await self._connection.stored_message(stream, sequence)
        if stored is None:
            log.warning("advisory.message_gone", stream=stream, sequence=sequence)
            return
        for message in (stored, replace(stored, headers={}, data=b"")):
            try:
                await self._add_dead_letter(message, stream, consumer, sequence)
                if stream == subjects.INTAKE:
                    if connection_number is None or connection_number != self._connection.connection_number:
                        raise Away("the bus was unavailable")
                    await self._connection.delete_message(stream, sequence)
                return
            except Transient:
                raise
            except Exception as error:
                log.error("dead_letter.failed", stream=stream, sequence=sequence, consumer=consumer, exc_info=error)

    async def _add_dead_letter(self, stored: StoredMessage, stream: str, consumer: str, sequence: int) -> None:
        inbound = envelope(
            stored.subject, stored.headers, stream=stream, sequence=sequence, delivered=1, stored_at=stored.at
        )
        origin = Origin(message_id=inbound.id, fence=_HIGHEST_FENCE, project=inbound.project, task_id=inbound.task_id)
        grant = diode.own(self._policy, inbound.project, inbound.id, utc_now())
        error = Permanent(ErrorCode.MAX_DELIVERIES)
        plan = plan_commit(
            self._policy,
            grant.model_copy(update={"audience": consumer}),
            origin,
            Commit(step="dead", dead_letter=dead_letter(stored.subject, stored.headers, stored.data, error)),
            now=utc_now(),
            caused_by=Provenance(integrity=UNTRUSTED),
            memories=ReadSet(),
            task_version=None,
        )
        reply = await self._committer.apply(plan)
        log.error("message.dead", message_id=inbound.id, consumer=consumer, status=reply.status)

"""Advisories of the bus: a message that reached its delivery limit becomes a dead letter, and stays one."""

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

_LAST_WORD = 1 << 62
"""A fence above that of every delivery."""


class Advisories:
    """Consumes the advisories that a message reached its last delivery."""

    def __init__(self, connection: Connection, policy: Policy, committer: Committer) -> None:
        self._connection = connection
        self._policy = policy
        self._committer = committer

    async def run(self) -> None:
        """Bury what the bus gave up on, for ever."""
        await self._connection.consume(subjects.ADVISORIES, "memory", self._heard)

    async def _heard(self, advisory: bytes) -> None:
        """Bury it whole, else without its body: the next one is not held up. Raises `Transient`.

        What is buried leaves the intake, which would wait for its consumer for ever, and count it. A bus that was away
        meanwhile may have another message in its place.
        """
        life = self._connection.connection_number
        body = json.loads(advisory)
        stream, consumer, sequence = body["stream"], body["consumer"], body["stream_seq"]
        found = await self._connection.stored_message(stream, sequence)
        if found is None:
            log.warning("advisory.message_gone", stream=stream, sequence=sequence)
            return
        for message in (found, replace(found, headers={}, data=b"")):
            try:
                await self._bury(message, stream, consumer, sequence)
                if stream == subjects.INTAKE:
                    if life is None or life != self._connection.connection_number:
                        raise Away("the bus was unavailable")
                    await self._connection.delete_message(stream, sequence)
                return
            except Transient:
                raise
            except Exception as error:
                log.error("dead_letter.failed", stream=stream, sequence=sequence, consumer=consumer, exc_info=error)

    async def _bury(self, found: StoredMessage, stream: str, consumer: str, sequence: int) -> None:
        known = envelope(
            found.subject, found.headers, stream=stream, sequence=sequence, delivered=1, stored_at=found.at
        )
        origin = Origin(message_id=known.id, fence=_LAST_WORD, project=known.project, task_id=known.task_id)
        grant = diode.own(self._policy, known.project, known.id, utc_now())
        error = Permanent(ErrorCode.MAX_DELIVERIES)
        plan = plan_commit(
            self._policy,
            grant.model_copy(update={"audience": consumer}),
            origin,
            Commit(step="dead", dead_letter=dead_letter(found.subject, found.headers, found.data, error)),
            now=utc_now(),
            caused_by=Provenance(integrity=UNTRUSTED),
            memories=ReadSet(),
            task_version=None,
        )
        reply = await self._committer.apply(plan)
        log.error("message.dead", message_id=known.id, consumer=consumer, status=reply.status)

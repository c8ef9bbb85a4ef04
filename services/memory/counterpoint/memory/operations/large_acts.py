"""Large acts: erasures and take-backs of more records than one person may change alone (docs/approvals.md).

Memory asks for an approval of exactly the list of records that the act changes, and does the act when it is asked for
again after a second person has approved that list. The act and the use of its approval are one commit.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

import structlog

from counterpoint.guard.policy import Policy
from counterpoint.memory.access import diode
from counterpoint.memory.commit.committer import Committer
from counterpoint.memory.commit.planner import plan_commit
from counterpoint.memory.provenance.read_sets import ReadSet
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.memory.record.stamps import Provenance
from counterpoint.proto.approvals import STORE, Approval, LargeAct, artifact_sha256
from counterpoint.proto.errors import Denied, ErrorCode
from counterpoint.proto.ids import derived_id, new_id
from counterpoint.proto.memory import Commit, Origin, Write

log = structlog.get_logger()

NAMED = 100
"""Maximum number of records that the text to approve names; the hash below covers all."""

_SQL = load_statements(__package__)


def in_one_line(text: str) -> str:
    """Return a name as it can stand in a line of a text to approve: escaped if it has line breaks or invisible
    characters, with which it could state another list."""
    return text if text.isprintable() else json.dumps(text)


class AwaitsApproval(Denied):
    """A second person must approve the act first."""

    def __init__(self, approval_id: str) -> None:
        super().__init__(ErrorCode.NOT_APPROVED, f"a second person to decide on approval {approval_id}")
        self.approval_id = approval_id


@dataclass(frozen=True)
class PlannedAct:
    """An act before it is done: its name, how many records it changes, a count of them in words, and each in a line."""

    kind: LargeAct
    name: str
    size: int
    counts: str
    lines: Sequence[str]

    @cached_property
    def text(self) -> str:
        """The text to approve. It is another one as soon as the act changes another record."""
        shown = [f"- {line}" for line in self.lines[:NAMED]]
        if len(self.lines) > NAMED:
            shown.append(f"- and {len(self.lines) - NAMED} more")
        every = hashlib.sha256("\n".join(self.lines).encode()).hexdigest()
        return "\n".join((self.name, self.counts, *shown, f"sha256 of the whole list: {every}"))

    def key(self, project: str) -> str:
        """Return the key of the act, whatever it covers at present."""
        return derived_id(project, self.kind, self.name)


class LargeActs:
    """Asks for approvals of large acts, and permits those that were approved."""

    def __init__(self, database: Database, policy: Policy, committer: Committer) -> None:
        self._database = database
        self._policy = policy
        self._committer = committer
        # Memory asks, and the router commits what a person decided. The manager keeps approvals of tasks beside them.
        self._authors = [agent for service in ("memory", "router") for agent in policy.services[service].agents]

    async def permit(self, origin: Origin, act: PlannedAct) -> tuple[Write, ...]:
        """Return the writes that use up the approval of an act, none for a small one.

        Raises `AwaitsApproval`, and `Denied` `not_approved` while a rejection of the same list stands.
        """
        if act.size <= self._policy.approvals.size(act.kind, origin.project):
            return ()
        now, key = datetime.now(UTC), act.key(origin.project)
        latest = await self._latest(origin.project, key)
        if latest is not None:
            approval, version = latest
            is_same = approval.is_intact and approval.artifact_sha256 == artifact_sha256(act.text)
            if is_same and now < approval.expires_at:
                if approval.state == "pending":
                    raise AwaitsApproval(approval.approval_id)
                if approval.state == "rejected":
                    raise Denied(ErrorCode.NOT_APPROVED, f"an act that {approval.decided_by} did not reject")
                if approval.state == "approved" and approval.has_second_person:
                    return (_write(approval.applied(), version),)
        asked = self._approval(origin, act, key, now)
        await self._ask(origin, asked, latest, now)
        raise AwaitsApproval(asked.approval_id)

    async def approvals(self, project: str) -> frozenset[tuple[str, str]]:
        """Return the store and id of every approval of a large act: they are kept, as the records of the acts are."""
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_SQL["approvals_of_acts"], project, self._authors)
        return frozenset((STORE, row["id"]) for row in rows)

    async def _latest(self, project: str, key: str) -> tuple[Approval, int] | None:
        async with self._database.reading(project) as connection:
            row = await connection.fetchrow(_SQL["latest_approval_of_act"], project, key, self._authors)
        return (Approval.model_validate(row["body"]), row["version"]) if row is not None else None

    def _approval(self, origin: Origin, act: PlannedAct, key: str, now: datetime) -> Approval:
        rules = self._policy.approvals
        return Approval(
            approval_id=new_id(),
            project=origin.project,
            requested_by=origin.principal or "memory",
            category=act.kind,
            autonomy="supervised",
            summary=f"{act.size} records, more than one person may change alone",
            artifact=act.text,
            artifact_sha256=artifact_sha256(act.text),
            requested_at=now,
            expires_at=now + timedelta(seconds=rules.expires_s),
            act=key,
        )

    async def _ask(self, origin: Origin, asked: Approval, latest: tuple[Approval, int] | None, now: datetime) -> None:
        writes = [_write(asked, 0)]
        if (
            latest is not None
            and (before := latest[0].expired(now).abandoned("what it covers has changed")) != latest[0]
        ):
            writes.append(_write(before, latest[1]))
        plan = plan_commit(
            self._policy,
            diode.taking_back(self._policy, origin.project, origin.message_id, now),
            origin,
            Commit(step=f"ask {asked.approval_id}", writes=tuple(writes)),
            now=now,
            caused_by=Provenance(),
            memories=ReadSet(),
            task_version=None,
        )
        await self._committer.apply(plan)
        log.info("approval.requested", project=origin.project, category=asked.category, approval_id=asked.approval_id)


def _write(approval: Approval, version: int) -> Write:
    body = approval.model_dump(mode="json", exclude_none=True)
    return Write(store=STORE, id=approval.approval_id, body=body, expect=version)

"""Commit requests: authorised, planned, embedded and applied, then checked against take-backs."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from uuid import UUID

from counterpoint.guard.capabilities import Grant
from counterpoint.guard.policy import Policy
from counterpoint.memory.access import diode
from counterpoint.memory.access.releases import Releases
from counterpoint.memory.commit.committer import Committer, TombstoneConflict
from counterpoint.memory.commit.dead_letters import DeadLetters
from counterpoint.memory.commit.leaf import with_messages
from counterpoint.memory.commit.pipeline import EmbeddingPipeline
from counterpoint.memory.commit.planner import accesses_of, owned, plan_commit
from counterpoint.memory.operations.take_back import TakeBacks
from counterpoint.memory.provenance.read_sets import ReadSet
from counterpoint.memory.record.plan import CommitPlan
from counterpoint.memory.record.stamps import Provenance
from counterpoint.memory.rpc.authority import Authority, key_of, require_read_set
from counterpoint.proto.errors import Conflict, Denied, ErrorCode
from counterpoint.proto.memory import Commit, CommitReply, CommitRequest, Origin, Ref


@dataclass(frozen=True, slots=True)
class CommitHandler:
    """Executes commit requests."""

    policy: Policy
    authority: Authority
    pipeline: EmbeddingPipeline
    committer: Committer
    dead_letters: DeadLetters
    takebacks: TakeBacks
    releases: Releases

    async def execute(self, caller: str, request: CommitRequest, *, resend: str | None = None) -> CommitReply:
        """Apply a commit; with `resend`, also send the message of that dead letter again. Raises `Conflict`, `Denied`,
        `Permanent` or `Transient`."""
        origin, commit = request.origin, request.commit
        accesses = accesses_of(commit)
        grant, integrity = await self.authority.authorise(caller, origin, accesses)
        self.authority.newest(grant, caller, origin)
        memories = self._memories(caller, request, command=resend is not None)
        wrong = self.takebacks.wrong(origin.project, memories)
        if wrong is not None:
            raise Conflict(wrong.store, wrong.id)
        # A run that was repeated because of a take-back is not derived from the items that were taken back.
        earlier = [ref for ref in memories.earlier if not self.takebacks.carried(origin.project, (ref,))]
        cause, version = await self.authority.causes.of(origin)
        if origin.capability is not None:
            origin = origin.model_copy(update={"principal": cause.principal})
        read = memories.provenance.with_(Provenance(integrity=integrity, refs=frozenset(earlier)))
        if diode.of_gateway(grant) and any(write.expect == 0 for write in commit.writes):
            read = read.with_(self.authority.reads.provenance_of(origin.message_id))
        unread = _unread(commit, memories) if diode.of_gateway(grant) else ()
        memories = replace(memories, scores={**memories.scores, **dict.fromkeys(unread)})
        while True:
            keys = owned(self.policy, grant, commit)
            owners, replaced = await self.authority.causes.changed_records(origin.project, keys, unread)
            plan = plan_commit(
                self.policy,
                grant,
                origin,
                commit,
                now=datetime.now(UTC),
                caused_by=cause,
                memories=replace(memories, provenance=read.with_(replaced)),
                task_version=version,
                owners=owners,
                screen=await self.releases.of(origin.project),
            )
            if resend is not None:
                retried = await self.dead_letters.message(origin.project, resend, plan.commit_id)
                plan = with_messages(plan, [retried])
            try:
                reply = await self.apply(plan)
            except TombstoneConflict as conflict:
                commit = _over_tombstone(commit, conflict)
            else:
                break
        if self.takebacks.carried(origin.project, plan.provenance.refs):
            await self.takebacks.follow(origin, plan)
        if commit.last:
            self.authority.reads.finish(caller, origin.message_id)
        elif diode.of_gateway(grant):
            # Each commit of the gateway has reads of its own; other calls for the message may be under way.
            self.authority.reads.drop(key_of(caller, origin))
        return reply

    async def finish(self, grant: Grant, origin: Origin, message_ids: Sequence[UUID]) -> None:
        """Apply a commit without effect for each of these messages that are for the holder of a grant. Raises
        `Transient`."""
        heads = await self.authority.causes.to(grant, message_ids)
        plans = [
            plan_commit(
                self.policy,
                grant.model_copy(update={"task": head.task_id, "message": head.id}),
                Origin(message_id=head.id, fence=origin.fence, project=origin.project, task_id=head.task_id),
                Commit(),
                now=datetime.now(UTC),
                caused_by=head.provenance,
                memories=ReadSet(),
                task_version=None,
            )
            for head in heads
        ]
        # Together they are applied in one transaction.
        results = await asyncio.gather(*map(self.committer.apply, plans), return_exceptions=True)
        for head, result in zip(heads, results, strict=True):
            # A message that was delivered again is finished by that delivery, which needs its read set.
            if isinstance(result, Denied) and result.rule == ErrorCode.FENCE:
                continue
            if isinstance(result, BaseException):
                raise result
            self.authority.reads.finish(grant.audience, head.id)

    def _memories(self, caller: str, request: CommitRequest, *, command: bool) -> ReadSet:
        """Return the read set of the delivery. A command has no content of the sender's, so missing reads do no harm.
        Raises `Transient`."""
        reads, key = self.authority.reads, key_of(caller, request.origin)
        return require_read_set(lambda: reads.so_far(key, 0) if command else reads.of(key, request.reads))

    async def apply(self, plan: CommitPlan) -> CommitReply:
        """Apply a plan with the vectors of its rows."""
        try:
            reply, _ = await self.pipeline.applied(self.committer, plan)
            return reply
        finally:
            self.releases.changed(plan)
            self.authority.changed(plan)


def _unread(commit: Commit, memories: ReadSet) -> tuple[Ref, ...]:
    """Return the versions that a commit of the gateway replaces without having read them for it. They count as read:
    the gateway settles a call by what it remembers of its reservation."""
    replaced = (Ref(store=each.store, id=each.id, version=each.expect) for each in commit.writes if each.expect > 0)
    return tuple(ref for ref in replaced if ref not in memories.scores)


def _over_tombstone(commit: Commit, conflict: TombstoneConflict) -> Commit:
    """Return the commit with inserts turned into inserts over the tombstone. Raises `conflict` if it has no such
    insert."""
    writes = tuple(
        write.model_copy(update={"expect": conflict.found})
        if (write.store, write.id, write.expect) == (conflict.store, conflict.record_id, 0)
        else write
        for write in commit.writes
    )
    if writes == commit.writes:
        raise conflict
    return commit.model_copy(update={"writes": writes})

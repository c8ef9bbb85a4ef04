"""Commit requests: authorised, planned, embedded and applied, then checked against take-backs."""

from dataclasses import replace
from datetime import UTC, datetime

from counterpoint.guard.policy import Policy
from counterpoint.memory.access import diode
from counterpoint.memory.access.releases import Releases
from counterpoint.memory.commit.committer import Committer, TombstoneConflict
from counterpoint.memory.commit.dead_letters import DeadLetters
from counterpoint.memory.commit.leaf import also_sending
from counterpoint.memory.commit.pipeline import EmbeddingPipeline
from counterpoint.memory.commit.planner import accesses_of, owned, plan_commit
from counterpoint.memory.operations.take_back import TakeBacks
from counterpoint.memory.provenance.read_sets import ReadSet
from counterpoint.memory.record.plan import CommitPlan
from counterpoint.memory.record.stamps import Provenance
from counterpoint.memory.rpc.authority import Authority, key_of, remembered
from counterpoint.proto.errors import Conflict
from counterpoint.proto.memory import Commit, CommitReply, CommitRequest


class CommitHandler:
    """Executes commit requests."""

    def __init__(
        self,
        policy: Policy,
        authority: Authority,
        pipeline: EmbeddingPipeline,
        committer: Committer,
        dead_letters: DeadLetters,
        takebacks: TakeBacks,
        releases: Releases,
    ) -> None:
        self._policy = policy
        self._authority = authority
        self._pipeline = pipeline
        self._committer = committer
        self._dead_letters = dead_letters
        self._takebacks = takebacks
        self._releases = releases

    async def execute(self, caller: str, request: CommitRequest, *, resend: str | None = None) -> CommitReply:
        """Apply a commit; with `resend`, also send the message of that dead letter again. Raises `Conflict`, `Denied`,
        `Permanent` or `Transient`."""
        origin, commit = request.origin, request.commit
        accesses = accesses_of(commit)
        grant, integrity = await self._authority.authorise(caller, origin, accesses)
        self._authority.newest(caller, origin)
        memories = self._memories(caller, request, command=resend is not None)
        wrong = self._takebacks.wrong(origin.project, memories)
        if wrong is not None:
            raise Conflict(wrong.store, wrong.id)
        # A run that was repeated because of a take-back is not derived from the items that were taken back.
        earlier = [ref for ref in memories.earlier if not self._takebacks.carried(origin.project, (ref,))]
        cause, version = await self._authority.causes.of(origin)
        if origin.capability is not None:
            origin = origin.model_copy(update={"principal": cause.principal})
        read = memories.provenance.with_(Provenance(integrity=integrity, refs=frozenset(earlier)))
        if diode.of_gateway(grant) and any(write.expect == 0 for write in commit.writes):
            read = read.with_(self._authority.reads.by_any(origin.message_id))
        memories = replace(memories, provenance=read)
        while True:
            prepared = plan_commit(
                self._policy,
                grant,
                origin,
                commit,
                now=datetime.now(UTC),
                caused_by=cause,
                memories=memories,
                task_version=version,
                owners=await self._authority.causes.owners(origin.project, owned(self._policy, grant, commit)),
                screen=await self._releases.screen(origin.project),
            )
            if resend is not None:
                retried = await self._dead_letters.message(origin.project, resend, prepared.commit_id)
                prepared = also_sending(prepared, [retried])
            try:
                reply = await self.apply(prepared)
            except TombstoneConflict as conflict:
                commit = _over_tombstone(commit, conflict)
            else:
                break
        if self._takebacks.carried(origin.project, prepared.provenance.refs):
            await self._takebacks.follow(origin, prepared)
        if commit.last or diode.of_gateway(grant):
            self._authority.reads.finish(caller, origin.message_id)
        return reply

    def _memories(self, caller: str, request: CommitRequest, *, command: bool) -> ReadSet:
        """Return the read set of the delivery. A command has no content of the sender's, so missing reads do no harm.
        Raises `Transient`."""
        reads, key = self._authority.reads, key_of(caller, request.origin)
        return remembered(lambda: reads.so_far(key, 0) if command else reads.of(key, request.reads))

    async def apply(self, prepared: CommitPlan) -> CommitReply:
        """Apply a plan with the vectors of its rows."""
        try:
            reply, _ = await self._pipeline.applied(self._committer, prepared)
            return reply
        finally:
            self._releases.changed(prepared)
            self._authority.changed(prepared)


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

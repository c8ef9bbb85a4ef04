"""Commands: authorised, executed, and recorded in the audit log by the commit that each makes."""

from datetime import UTC, datetime
from typing import assert_never

from counterpoint.guard.capabilities import Access, Grant
from counterpoint.guard.policy import Policy
from counterpoint.memory.access import diode
from counterpoint.memory.commit.dead_letters import DeadLetters
from counterpoint.memory.operations import erasure, quarantines
from counterpoint.memory.operations.erasure import Erasures
from counterpoint.memory.operations.large_acts import AwaitsApproval
from counterpoint.memory.operations.reembedding import Reembedding
from counterpoint.memory.operations.take_back import TakeBacks
from counterpoint.memory.projection.projections import Tiers
from counterpoint.memory.rpc.authority import Authority
from counterpoint.memory.rpc.commits import CommitHandler
from counterpoint.memory.rpc.gateway_tokens import GatewayTokens
from counterpoint.proto.commands import (
    ChangeEmbeddingModel,
    Command,
    CommandReply,
    CommandRequest,
    EraseContent,
    FinishMessages,
    IssueEditorToken,
    IssueGatewayToken,
    IssueReplayToken,
    RebuildProjection,
    RetryDeadLetter,
    TakeBackMemory,
)
from counterpoint.proto.errors import Denied
from counterpoint.proto.memory import CommitRequest, Origin, Rebuild


class CommandHandler:
    """Executes commands."""

    def __init__(
        self,
        policy: Policy,
        authority: Authority,
        commits: CommitHandler,
        dead_letters: DeadLetters,
        takebacks: TakeBacks,
        erasures: Erasures,
        projections: tuple[Tiers, Reembedding],
        tokens: GatewayTokens,
    ) -> None:
        self._policy = policy
        self._authority = authority
        self._commits = commits
        self._dead_letters = dead_letters
        self._takebacks = takebacks
        self._erasures = erasures
        self._tiers, self._reembedding = projections
        self._tokens = tokens

    async def execute(self, caller: str, request: CommandRequest) -> CommandReply:
        """Execute one command. Raises `Conflict`, `Denied`, `Permanent` or `Transient`."""
        origin, command = request.origin, request.command
        if isinstance(command, IssueGatewayToken):
            return CommandReply(token=await self._tokens.of(caller, origin, command))
        if isinstance(command, IssueReplayToken):
            return CommandReply(token=await self._tokens.of_replay(caller, origin, command))
        if isinstance(command, IssueEditorToken):
            return CommandReply(token=await self._tokens.of_editor(caller, origin, command))
        if isinstance(command, FinishMessages):
            return await self._finish(caller, origin, command)
        grant = await self._authorise(caller, origin, command)
        match command:
            case TakeBackMemory(preview=True):
                preview = await self._takebacks.preview(origin.project, command.wish)
                return CommandReply(report=preview.model_dump(mode="json"))
            case TakeBackMemory() | EraseContent():
                return await self._change(origin, command)
            case RetryDeadLetter():
                return await self._retry(caller, origin, command)
            case RebuildProjection():
                found = await self._tiers.answer(grant, Rebuild(tier=command.tier, start=True))
                return CommandReply(report=found.report)
            case ChangeEmbeddingModel():
                return CommandReply(report=await self._reembedding.act(caller, origin, command))
            case _:
                assert_never(command)

    async def _change(self, origin: Origin, command: TakeBackMemory | EraseContent) -> CommandReply:
        """Take back or erase, or return the approval that the act waits for."""
        try:
            if isinstance(command, TakeBackMemory):
                return CommandReply(commit=await self._takebacks.apply(origin, command.id, command.wish))
            return CommandReply(commit=await self._erasures.apply(origin, command.id, command.wish))
        except AwaitsApproval as waits:
            return CommandReply(approval=waits.approval_id)

    async def _authorise(self, caller: str, origin: Origin, command: Command) -> Grant:
        """Return the grant of the caller. Raises `Denied` where it does not cover the command."""
        store = _store(command)
        writes = store != "projections"
        grant, _ = await self._authority.authorise(caller, origin, (Access(store, "write" if writes else "read"),))
        self._authority.newest(grant, caller, origin)
        if writes:
            agent = self._policy.services[grant.audience].agents[0]
            rule = diode.write(self._policy, grant, store, agent, None, self._policy.store_level(store))
        else:
            rule = diode.read(self._policy, grant, store)
        if rule is not None:
            raise Denied(rule, f"the right to {'write' if writes else 'read'} {store}")
        if isinstance(command, ChangeEmbeddingModel):
            await self._authority.operates_all(origin)
        return grant

    async def _finish(self, caller: str, origin: Origin, command: FinishMessages) -> CommandReply:
        """Note messages as finished. Raises `Denied`."""
        grant, _ = await self._authority.authorise(caller, origin, (Access("inbox", "write"),))
        await self._commits.finish(grant, origin, command.ids)
        return CommandReply()

    async def _retry(self, caller: str, origin: Origin, command: RetryDeadLetter) -> CommandReply:
        commit = await self._dead_letters.retried(origin, command.id, command.version, datetime.now(UTC))
        request = CommitRequest(origin=origin, commit=commit)
        return CommandReply(commit=await self._commits.execute(caller, request, resend=command.id))


def _store(command: Command) -> str:
    """Return the store whose right a command needs."""
    match command:
        case TakeBackMemory():
            return quarantines.STORE
        case EraseContent():
            return erasure.STORE
        case RetryDeadLetter():
            return "dead_letters"
        case RebuildProjection() | ChangeEmbeddingModel():
            return "projections"
        case IssueGatewayToken() | IssueReplayToken() | IssueEditorToken() | FinishMessages():
            raise AssertionError(f"{command.op} is authorised by its delivery or task")
        case _:
            assert_never(command)

"""Gateway tokens, each limited by the read set of its delivery, or of the delivery that is replayed; and those for the
tools of principals, limited by the label and the budget of a task."""

from counterpoint.guard.capabilities import Access
from counterpoint.memory.access import diode
from counterpoint.memory.access.tokens import Tokens
from counterpoint.memory.query.recorded_reads import recorded_delivery
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.stamps import UNTRUSTED
from counterpoint.memory.rpc.authority import Authority, key_of, require_read_set
from counterpoint.proto.commands import IssueEditorToken, IssueReplayToken
from counterpoint.proto.errors import Denied, ErrorCode, Permanent, Problem
from counterpoint.proto.memory import GatewayToken, Origin
from counterpoint.proto.replays import sandbox_project
from counterpoint.proto.tasks import ENDED

_READ_BY_EDITORS = (Access("tasks", "read"), Access("spend", "read"))
_READ_BY_REPLAYS = (Access("audit", "read"), Access("tasks", "read"))
_REPLAY = "replay"
"""The caller in whose name the reads of a replay are kept."""


class GatewayTokens:
    """Issues gateway tokens."""

    def __init__(self, authority: Authority, tokens: Tokens, database: Database) -> None:
        self._authority = authority
        self._tokens = tokens
        self._database = database

    async def of(self, caller: str, origin: Origin, request: GatewayToken) -> str:
        """Issue a token for the reads of this delivery so far; one for the web makes the delivery untrusted."""
        grant, _ = await self._authority.authorise(caller, origin)
        if await self._authority.causes.has_ended(grant):
            raise Denied(ErrorCode.ENDED, "a task that has not ended")
        self._authority.newest(grant, caller, origin)
        cause, _ = await self._authority.causes.of(origin)
        read = require_read_set(lambda: self._authority.reads.so_far(key_of(caller, origin), request.reads))
        label = cause.with_(read.provenance).label
        token = self._tokens.of_task(grant, request.purpose, label, request.life_s)
        if request.purpose == "web":
            self._authority.reads.note(key_of(caller, origin), [], UNTRUSTED)
        return token

    async def of_replay(self, caller: str, origin: Origin, request: IssueReplayToken) -> str:
        """Issue a token for a call in the sandbox of a project, whose prompt rests on what a delivery has read.

        It is for a principal that may replay tasks of the project and submit tasks in the sandbox. Raises `Denied`
        (`store`, `role`, `label` ...) or `Permanent` `not_found`.
        """
        grant, _ = await self._authority.authorise(caller, origin, _READ_BY_REPLAYS)
        for access in _READ_BY_REPLAYS:
            rule = diode.read(self._authority.policy, grant, access.store)
            if rule is not None:
                raise Denied(rule, f"the right to read {access.store}")
        sandbox = sandbox_project(origin.project)
        principal = await self._authority.asker(origin)
        if principal is None or not principal.may("submit", sandbox):
            raise Denied(ErrorCode.ROLE, f"the role submit in project {sandbox}, which pays for the replay")
        async with self._database.reading(origin.project) as connection:
            delivery = await recorded_delivery(connection, grant.project, request)
        token = self._tokens.of_replay(sandbox, request.job, delivery.service, delivery.label, request.budget)
        # The record of the call, with the reply, has the label of what the prompt rests on.
        self._authority.reads.note((_REPLAY, f"{diode.JOB}{request.job}", 0, 0), [], UNTRUSTED, delivery.label)
        return token

    async def of_editor(self, caller: str, origin: Origin, request: IssueEditorToken) -> str:
        """Issue a token for the tools of the principal, which pays with the budget of a task that has not ended.

        Raises `Denied` (`role`, `budget`, `ended`, `label`) or `Permanent` `unknown_task`.
        """
        grant, _ = await self._authority.authorise(caller, origin, _READ_BY_EDITORS)
        principal = await self._authority.asker(origin)
        self._authority.works_with_models(principal, origin.project)
        assert principal is not None
        for access in _READ_BY_EDITORS:
            # A service that does not see what a task has spent does not spend for it.
            rule = diode.read(self._authority.policy, grant, access.store)
            if rule is not None:
                raise Denied(rule, f"the right to read {access.store}")
        task = await self._authority.causes.task(grant.project, request.task_id)
        if task is None:
            raise Permanent(ErrorCode.UNKNOWN_TASK, (Problem(field="task_id", problem="is not a task of the project"),))
        if task.state in ENDED:
            raise Denied(ErrorCode.ENDED, "a task that has not ended")
        if not task.has_budget:
            raise Denied(ErrorCode.BUDGET, "a task with a budget, since a tool calls as often as it likes")
        return self._tokens.of_editor(grant.project, request.task_id, principal, task.label, request.minutes * 60.0)

"""Handlers of approvals: reads and writes of limits around the pure decisions of `approvals`."""

from dataclasses import replace

from counterpoint.client import Memory, put
from counterpoint.guard.policy import ActRule, ApprovalPolicy
from counterpoint.manager import approvals
from counterpoint.manager.gateway.lifts import lifts_for
from counterpoint.manager.spend_lifts import lifted, read_counted
from counterpoint.manager.task_history import TaskHistory
from counterpoint.manager.task_update import TaskUpdate, UpdateAndWrites, without_effect
from counterpoint.manager.tool_approvals import on_tool_decided, on_tool_due, on_tool_refused
from counterpoint.manager.workflow import AWAITS_APPROVAL
from counterpoint.proto.approvals import Approval, ApprovalDecided
from counterpoint.proto.memory import Write
from counterpoint.proto.tasks import TaskWorked


class ApprovalDesk:
    """Asks for approvals and acts on decisions, under the policy."""

    def __init__(self, policy: ApprovalPolicy) -> None:
        self._policy = policy

    async def held(self, memory: Memory, history: TaskHistory, message: TaskWorked) -> UpdateAndWrites | None:
        """Return the update that holds a result until a person has decided; None if no act needs an approval."""
        if not approvals.is_current(history, message):
            return None
        act, writes = await self._refused_call(memory, history)
        act = (
            act
            or approvals.held_search(history, message, self._policy)
            or approvals.held_proposal(history, message, self._policy)
            or approvals.held_documents(history, message, self._policy)
        )
        if act is None:
            return None
        approval_id = memory.id("approval")
        return approvals.hold(history, message, act, approval_id, memory.now, self._policy), writes

    def permitted(self, history: TaskHistory, message: TaskWorked) -> TaskWorked:
        """Return a result without what the policy refuses."""
        return approvals.permitted(history, message, self._policy)

    def web(self, autonomy: str, project: str) -> ActRule:
        """Return the rule for searches of the web."""
        return self._policy.act("web", autonomy, project)

    async def on_decided(self, memory: Memory, history: TaskHistory, message: ApprovalDecided) -> UpdateAndWrites:
        """Act on the decision in the record. A message without it has no effect."""
        approval = approvals.awaited(history, message.approval_id)
        if approval is None and (tool := await on_tool_decided(memory, history, message)):
            return tool
        if approval is None or approval.decision is None:
            return without_effect(history, f"a decision on approval {message.approval_id} by {message.by}"), ()
        if approval.decision == "rejected" or not approval.is_intact:
            return self._not_approved(memory, history, approval), ()
        if approval.category == "spend":
            return await self._lift(memory, history, approval)
        if approval.category == "web":
            permitted = approvals.permit_search(history, approval, memory.now)
            return permitted or self._not_approved(memory, history, approval), ()
        return approvals.release(history, approval, memory.now), ()

    async def on_tool_refused(self, memory: Memory, history: TaskHistory) -> UpdateAndWrites:
        """Ask for a lift of the limits that refused a call of a tool of a principal, once."""
        return await on_tool_refused(memory, history, self._policy)

    async def on_tool_due(self, memory: Memory, history: TaskHistory, approval_id: str | None) -> TaskUpdate:
        """Remind of an approval that a refused call of a tool asked for."""
        return await on_tool_due(memory, history, approval_id)

    def on_due(self, memory: Memory, history: TaskHistory) -> TaskUpdate:
        """Remind of the approval that the task waits for, or expire it, unless a person has decided in time."""
        approval = approvals.awaited(history)
        if approval is None and history.workflow_state == AWAITS_APPROVAL and history.approval is None:
            return approvals.drop(history, None, memory.now)
        if approval is None:
            return without_effect(history, "the end of the time for an approval")
        expired = approval.expired(memory.now)
        if approval.decision is not None:
            return without_effect(history, f"the end of the time for an approval that {approval.decided_by} decided")
        if expired.state == "pending":
            return approvals.remind(approval, memory.now)
        return self._not_approved(memory, history, expired)

    async def _refused_call(
        self, memory: Memory, history: TaskHistory
    ) -> tuple[approvals.HeldAct | None, tuple[Write, ...]]:
        refused, task = history.spend.refused, history.task
        if refused is None or self._policy.act("spend", task.autonomy, task.project) != "ask":
            return None, ()
        lifts = lifts_for(refused, await read_counted(memory, task))
        if not lifts:
            return None, ()
        spend = history.spend.model_copy(update={"refused": None, "warnings": ()})
        return approvals.held_call(refused, lifts), (put("spend", task.task_id, spend, existing=history.spend_item),)

    async def _lift(self, memory: Memory, history: TaskHistory, approval: Approval) -> UpdateAndWrites:
        counted = await read_counted(memory, history.task)
        if writes := lifted(counted, approval.lifts):
            return approvals.lift(history, memory.now, applied=True), writes
        lifts = lifts_for(approval.refused, counted) if approval.refused else ()
        if not lifts or approval.refused is None:
            return approvals.lift(history, memory.now, applied=False), ()
        act = approvals.held_call(approval.refused, lifts)
        return approvals.ask_again(history, act, memory.id("approval"), memory.now, self._policy), ()

    def _not_approved(self, memory: Memory, history: TaskHistory, approval: Approval) -> TaskUpdate:
        if approval.category == "proposal":
            return approvals.drop(history, approval, memory.now)
        if approval.category == "document":
            return approvals.release(history, approval, memory.now)
        message = TaskWorked.model_validate(approval.held)
        act = approvals.held_proposal(history, message, self._policy) or approvals.held_documents(
            history, message, self._policy
        )
        if act is None:
            return approvals.release(history, approval, memory.now)
        decided = approvals.decided(history, approval)
        return approvals.hold(decided, message, act, memory.id("approval"), memory.now, self._policy)


def with_warnings(history: TaskHistory, update: TaskUpdate, writes: tuple[Write, ...]) -> UpdateAndWrites:
    """Add the warnings of soft limits to an update, and take them out of the spending record."""
    warnings, task_id = history.spend.warnings, history.task.task_id
    if not warnings:
        return update, writes
    if not any((write.store, write.id) == ("spend", task_id) for write in writes):
        passed_on = history.spend.model_copy(update={"warnings": ()})
        writes += (put("spend", task_id, passed_on, existing=history.spend_item),)
    return replace(update, warnings=warnings), writes

"""Commands that people write in a chat, with the words of the command line. A reply is plain text."""

from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from counterpoint.client import records
from counterpoint.proto.approvals import STORE as APPROVALS
from counterpoint.proto.approvals import Approval, ApprovalDecision, ShownApproval
from counterpoint.proto.attempts import ReportOutcome
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.memory import List
from counterpoint.proto.messages import Id, ProjectName, Shape
from counterpoint.proto.tasks import Task
from counterpoint.proto.validation import parse
from counterpoint.router.api.approvals import decide_approval, read_approval
from counterpoint.router.api.context import RequestContext
from counterpoint.router.api.delegations import require_approver
from counterpoint.router.api.tasks import read_task, report_outcome
from counterpoint.router.api.waiting_tasks import waiting_tasks
from counterpoint.router.notify.bodies.mail import text as incident_text
from counterpoint.router.notify.summary import TEXT_CHARS, shortened, summary_of

LISTED = 10
_ID, _PROJECT = TypeAdapter[Any](Id), TypeAdapter[Any](ProjectName | None)
HASH_DIGITS = 12
"""Digits of the hash of a text that a person repeats to approve exactly that text."""
OUTCOMES = ("succeeded", "failed", "partial")


@dataclass(frozen=True, slots=True)
class ChatReply:
    """The reply to a command: `text`, and texts to approve, which are shown character by character."""

    text: str
    verbatim: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChatCommand:
    """A command: its verb, what it is about, and the text after it. `project` is the one named by `--project`.

    `clearance` is the level of the highest label of text that the reply may have, `request_id` that of the request.
    """

    verb: str
    words: tuple[str, ...]
    project: str | None = None
    clearance: int = 0
    request_id: str | None = None

    def text_from(self, position: int) -> str:
        """Return the words from a position on as one text."""
        return " ".join(self.words[position:])


class _Verb(Shape):
    """The words that a verb takes, and its effect."""

    words: str
    effect: str
    needed: int = 0


VERBS: Mapping[str, _Verb] = {
    "waiting": _Verb(words="", effect="list what waits for a person"),
    "show": _Verb(words="TASK", effect="show a task", needed=1),
    "approvals": _Verb(words="", effect="list the approvals that wait, with their texts"),
    "approve": _Verb(words="APPROVAL HASH", effect="approve the text with this hash", needed=2),
    "reject": _Verb(words="APPROVAL HASH REASON", effect="reject the text with this hash", needed=3),
    "outcome": _Verb(words="TASK succeeded|failed|partial [NOTE]", effect="report how a proposal ended", needed=2),
    "changed": _Verb(words="TASK WHAT", effect="say what fixed a task, which is then known for the next one", needed=2),
    "help": _Verb(words="", effect="show this list"),
}


def command_in(text: str) -> ChatCommand:
    """Return the command in a text; `help` for an empty one. Raises `Permanent` `invalid`."""
    words = text.split()
    project = None
    if "--project" in words:
        at = words.index("--project")
        if at + 1 == len(words):
            raise _invalid("--project", "needs the name of a project")
        project = words[at + 1]
        del words[at : at + 2]
    verb, *rest = words or ["help"]
    known = VERBS.get(verb.lower())
    if known is None:
        raise _invalid("command", f"{verb[:40]} is none of {', '.join(VERBS)}")
    if len(rest) < known.needed:
        raise _invalid("command", f"needs {verb.lower()} {known.words}")
    _check("--project", _PROJECT, project)
    if known.needed:
        _check(known.words.split()[0], _ID, rest[0])
    return ChatCommand(verb.lower(), tuple(rest), project)


async def run_command(context: RequestContext, command: ChatCommand) -> ChatReply:
    """Run a command on the caller's behalf. Raises `Denied`, and `Permanent` for what is unknown or decided."""
    return await _RUN[command.verb](context, command)


async def _waiting(context: RequestContext, command: ChatCommand) -> ChatReply:
    waiting, more = await waiting_tasks(context, LISTED)
    recovered = await context.fetch(List(store="tasks", where={"needs": [{"kind": "outcome"}]}, limit=LISTED))
    labels = {item.id: item.label for item in recovered.items} | await _labels(context, waiting)
    withheld = {task_id for task_id, label in labels.items() if label > command.clearance}
    lines = [_line(task, _wait(task), withheld) for task in waiting]
    if more:
        lines.append("more: counterpoint tasks --state input_required")
    lines += [_line(task, "recovered: what fixed it?", withheld) for task in records(recovered.items, Task)]
    return ChatReply("\n".join(lines) or f"Nothing waits in project {context.project}.")


async def _show(context: RequestContext, command: ChatCommand) -> ChatReply:
    task = await read_task(context, command.words[0])
    withheld = (await _labels(context, [task])).get(task.task_id, command.clearance + 1) > command.clearance
    summary = summary_of(task, task.context or {}, withheld=withheld)
    return ChatReply(shortened(incident_text(summary), TEXT_CHARS))


async def _labels(context: RequestContext, tasks: Sequence[Task]) -> dict[str, int]:
    """Return the labels of the records of tasks."""
    items = await context.memory().get_all("tasks", [task.task_id for task in tasks])
    return {item.id: item.label for item in items}


async def _approvals(context: RequestContext, command: ChatCommand) -> ChatReply:
    context.require("read", "approve")
    memory = context.memory()
    found = await context.fetch(List(store=APPROVALS, where={"state": "pending"}, limit=LISTED))
    items = [item for item in found.items if item.label <= command.clearance]
    shown = [each for each in records(items, Approval) if each.state_at(memory.now) == "pending"]
    lines = [f"{number}. {each.summary}\n{_how_to_decide(each)}" for number, each in enumerate(shown, 1)]
    if above := len(found.items) - len(items):
        lines.append(f"{above} with a text above the clearance of this chat: counterpoint approvals")
    nothing = f"No approval waits in project {context.project}."
    return ChatReply("\n".join(lines) or nothing, tuple(each.artifact for each in shown if _is_short(each)))


async def _decide(context: RequestContext, command: ChatCommand) -> ChatReply:
    await require_approver(context)
    approval_id, digits = command.words[0], command.words[1].lower()
    shown = await read_approval(context, approval_id)
    if len(digits) < HASH_DIGITS or not shown.artifact_sha256.startswith(digits):
        raise _invalid("HASH", f"is not that of the text; `approvals` shows the text and the {HASH_DIGITS} digits")
    if not _is_short(shown):
        raise _invalid("APPROVAL", "has a text that is too long to be shown here; decide it where it is shown whole")
    verdict, reason = ("approved", None) if command.verb == "approve" else ("rejected", command.text_from(2))
    decision = ApprovalDecision.model_validate(
        {"decision": verdict, "artifact_sha256": shown.artifact_sha256, "reason": reason}
    )
    after = await decide_approval(context, approval_id, decision)
    return ChatReply(f"{approval_id} is {after.state} by {after.decided_by}.")


async def _outcome(context: RequestContext, command: ChatCommand) -> ChatReply:
    task_id, outcome = command.words[0], command.words[1].lower()
    if outcome not in OUTCOMES:
        raise _invalid("outcome", f"must be {', '.join(OUTCOMES)}")
    return await _report(
        context, command, {"task_id": task_id, "outcome": outcome, "note": command.text_from(2) or None}
    )


async def _changed(context: RequestContext, command: ChatCommand) -> ChatReply:
    task_id, note = command.words[0], command.text_from(1)
    fields: dict[str, object] = {"task_id": task_id, "outcome": "succeeded", "by": "something_else", "note": note}
    return await _report(context, command, fields)


async def _report(context: RequestContext, command: ChatCommand, fields: dict[str, object]) -> ChatReply:
    context.require("report")
    report = parse(ReportOutcome.TYPE, {name: value for name, value in fields.items() if value is not None})
    assert isinstance(report, ReportOutcome)
    receipt = await report_outcome(context, report, request_id=command.request_id)
    late = f" It had ended before, as {receipt.state}." if receipt.late else ""
    return ChatReply(f"Reported for task {receipt.task_id}.{late}")


async def _help(context: RequestContext, command: ChatCommand) -> ChatReply:
    lines = [f"{name} {verb.words}".strip() + f": {verb.effect}" for name, verb in VERBS.items()]
    return ChatReply("\n".join((*lines, "Add --project NAME for another project.")))


_RUN: Mapping[str, Callable[[RequestContext, ChatCommand], Awaitable[ChatReply]]] = {
    "waiting": _waiting,
    "show": _show,
    "approvals": _approvals,
    "approve": _decide,
    "reject": _decide,
    "outcome": _outcome,
    "changed": _changed,
    "help": _help,
}


def _wait(task: Task) -> str:
    return task.escalation.code if task.escalation else f"waits for {task.waiting_for}"


def _line(task: Task, state: str, withheld: Container[str]) -> str:
    title = "withheld" if task.task_id in withheld else shortened(task.title or task.description, 120)
    return f"{task.task_id}: {title} ({state})"


def _how_to_decide(approval: ShownApproval) -> str:
    if not _is_short(approval):
        among = f"--task {approval.task_id}" if approval.task_id else f"--category {approval.category}"
        return f"The text is too long to be shown here: counterpoint approvals {among}"
    return f"approve {approval.approval_id} {approval.artifact_sha256[:HASH_DIGITS]}"


def _is_short(approval: ShownApproval) -> bool:
    """Whether a text is shown whole; one that is not is not decided in a chat."""
    return shortened(approval.artifact, TEXT_CHARS) == approval.artifact.strip()


def _check(field: str, form: TypeAdapter[Any], value: str | None) -> None:
    try:
        form.validate_python(value)
    except ValidationError:
        raise _invalid(field, "is not valid") from None


def _invalid(field: str, problem: str) -> Permanent:
    return Permanent(ErrorCode.INVALID, (Problem(field=field, problem=problem),))


def refusal(problems: Sequence[Problem], fallback: str) -> ChatReply:
    """Return an error as a reply that a person reads."""
    return ChatReply("; ".join(f"{each.field} {each.problem}" for each in problems) or fallback)

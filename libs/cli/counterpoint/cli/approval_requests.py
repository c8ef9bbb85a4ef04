"""Requests of decisions on approvals: on one of them, or on all that match a filter."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from counterpoint.cli.commands.approvals import CategoryFilter, TaskFilter, check_category, describe_approval
from counterpoint.cli.errors import ApiError, CommandError, Exit, UsageError
from counterpoint.cli.options import check_id
from counterpoint.cli.session import CommandSession

if TYPE_CHECKING:
    from counterpoint.cli.api import ApiClient

ApprovalId = Annotated[
    str | None, typer.Argument(metavar="APPROVAL", help="The approval's id; or --all.", callback=check_id)
]
Sha256Prefix = Annotated[
    str | None, typer.Option("--sha256", help="Refuse unless the hash of the text begins with this.")
]
All = Annotated[bool, typer.Option("--all", help="All that wait; they are shown first.")]
Yes = Annotated[bool, typer.Option("--yes", help="With --all: do not ask for confirmation.")]

LIMIT = 200
"""Maximum number of approvals that one command decides."""


@dataclass(frozen=True)
class ApprovalSelection:
    """The approvals to decide: one by its id, or all that match the filters."""

    approval: str | None
    all: bool
    category: CategoryFilter
    task: TaskFilter
    sha256: str | None
    yes: bool

    def check(self) -> None:
        """Raise `UsageError` for a selection of nothing, or with options of the other kind."""
        check_category(self.category)
        if self.all == (self.approval is not None):
            raise UsageError("give the id of an approval, or --all")
        if self.all and self.sha256:
            raise UsageError("--sha256 is for one approval")
        if not self.all and (self.category or self.task or self.yes):
            raise UsageError("--category, --task and --yes need --all")


def decide(
    session: CommandSession, selection: ApprovalSelection, decision: Literal["approved", "rejected"], reason: str | None
) -> Exit | None:
    """Send a decision with the hash of each text that was read, and show both. Raises CommandError."""
    selection.check()
    with session.connect() as api:
        if selection.approval is not None:
            shown = api.get(f"/v1/approvals/{selection.approval}", project=session.project)
            if selection.sha256 is not None and not shown["artifact_sha256"].startswith(selection.sha256.lower()):
                raise CommandError(f"the hash of the text is {shown['artifact_sha256']}, not {selection.sha256}")
            reply = _send(session, api, shown, decision, reason)
            session.show(reply, lambda: f"{describe_approval(reply)}\n{decision}")
            return None
        return _decide_all(session, api, selection, decision, reason)


def waits_for_second(session: CommandSession, reply: dict[str, Any], again: str) -> Exit | None:
    """Show the approval that a large act waits for, and the commands that follow; None for an act that was done.

    `again` is the command of the act.
    """
    if "approval_id" not in reply:
        return None
    approve = session.command("approve", reply["approval_id"], project=reply["project"])

    def human() -> str:
        return (
            f"{describe_approval(reply)}\n"
            f"nothing was changed: a second person with the role approve runs\n  {approve}\n"
            f"and then you run this again:\n  {again}\n"
            "`counterpoint principal create NAME --kind person --role approve` adds such a person"
        )

    session.show(reply, human)
    return Exit.WAITING


def _decide_all(
    session: CommandSession, api: "ApiClient", selection: ApprovalSelection, decision: str, reason: str | None
) -> Exit | None:
    filters = {"category": selection.category, "task_id": selection.task, "project": session.project}
    page = api.pages("/v1/approvals", LIMIT, state="pending", **filters)
    waiting = page["items"]
    for each in waiting:
        session.note(f"{describe_approval(each)}\n")
    if page["next_cursor"]:
        session.note(f"the first {LIMIT}; there are more")
    if waiting and not selection.yes:
        _confirm(f"{len(waiting)} {'approval' if len(waiting) == 1 else 'approvals'}", decision)
    decided, failed = [], []
    for each in waiting:
        try:
            decided.append(_send(session, api, each, decision, reason))
        except ApiError as error:
            failed.append({"approval_id": each["approval_id"], "problem": error.problem()})
    session.show({"items": decided, "failed": failed}, lambda: _summary(decision, decided, failed))
    return Exit.FAILED if failed else None


def _send(
    session: CommandSession, api: "ApiClient", shown: dict[str, Any], decision: str, reason: str | None
) -> dict[str, Any]:
    body = {"decision": decision, "artifact_sha256": shown["artifact_sha256"], "reason": reason}
    reply: dict[str, Any] = api.post(f"/v1/approvals/{shown['approval_id']}", body, project=session.project)
    return reply


def _confirm(what: str, decision: str) -> None:
    if not sys.stdin.isatty():
        raise UsageError(f"{what} would be {decision}; confirm with --yes")
    if not typer.confirm(f"These {what} will be {decision}. Continue?", err=True):
        raise UsageError("cancelled: nothing was decided")


def _summary(decision: str, decided: list[Any], failed: list[Any]) -> str:
    lines = [f"{each['approval_id']}  {decision}" for each in decided]
    for each in failed:
        problem = each["problem"]
        wrong = "; ".join(f"{one['field']} {one['problem']}" for one in problem.get("errors", ()))
        lines.append(f"{each['approval_id']}  not {decision}: {wrong or problem['title']}")
    return "\n".join(lines) or "no approvals wait"

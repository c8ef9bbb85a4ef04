"""`counterpoint replay`: run the decisions of a task again."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import Exit, UsageError
from counterpoint.cli.options import check_id
from counterpoint.cli.session import CommandSession

if TYPE_CHECKING:
    from counterpoint.cli.api import ApiClient
    from counterpoint.cli.replay.many import ManyReplays
    from counterpoint.cli.replay.processes import ReplayProcesses
    from counterpoint.proto.tasks import Budget

POLICY_PARTS = ("calibration", "limits")
BUDGET_USD = 0.25


@command("replay", Panel.OPERATE, "counterpoint replay TASK --without attempts/ID")
def replay(
    session: CommandSession,
    task: Annotated[
        str | None, typer.Argument(metavar="TASK", help="The id of an ended task.", callback=check_id)
    ] = None,
    without: Annotated[
        str | None,
        typer.Option("--without", metavar="ITEM", help="Leave out STORE/ID, or the source of a document."),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option("--policy", metavar="FILE", help="Decide by another policy."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="MODEL", help="Let another model decide, paid by the project's sandbox."),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option("--budget", metavar="USD", min=0, help=f"With --model: at most, {BUDGET_USD} by default."),
    ] = None,
    tokens: Annotated[
        int | None, typer.Option("--tokens", min=0, help="With --model: at most, for a model without a known price.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="With --model: call it again where an earlier replay has its replies.")
    ] = False,
    all_: Annotated[bool, typer.Option("--all", help="Replay all ended tasks of the project.")] = False,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="With --all: only tasks submitted since.")
    ] = None,
) -> Exit | None:
    """Rebuild what each step of an ended task was given, and run its decisions again. Nothing is written or sent.

    With --model the calls of models are made again by another one. They are all that is sent, and the project
    PROJECT-replay pays for them. With --all and --model all tasks have one budget: the run stops when it ends, and goes
    on when it is repeated with a larger one. Without --without, --policy and --model a different decision is exit code
    1.
    """
    if (task is None) != all_:
        raise UsageError("replay takes a task, or --all")
    if since and not all_:
        raise UsageError("--since needs --all")
    of_model = _of_model(model, budget, tokens, again=again)
    _check_policy(policy)
    begun = _time(since)
    from counterpoint.cli.replay.processes import ReplayProcesses

    expected = {"same", "different"} if without or policy or model else {"same"}
    with session.connect() as api, ReplayProcesses(policy) as processes:
        if task is not None:
            verdict = _replay_one(api, session, processes, task, without, policy, of_model)
            return Exit.DONE if verdict in expected else Exit.FAILED
        from counterpoint.cli.replay.many import ManyReplays

        tasks = ManyReplays(api, session.project, processes, session.note, begun, without)
        return _replay_all(session, tasks, of_model, expected)


def _replay_one(
    api: "ApiClient",
    session: CommandSession,
    processes: "ReplayProcesses",
    task: str,
    without: str | None,
    policy: Path | None,
    of_model: tuple[str, "Budget", str] | None,
) -> str:
    """Replay a task, perhaps with another model, its budget and its run; show the report and return the verdict."""
    from counterpoint.cli.replay.markdown import task_report
    from counterpoint.cli.replay.other_model import ModelReplay
    from counterpoint.cli.replay.task import replay_task

    model = ModelReplay(api, task, session.project, *of_model) if of_model else None
    report = replay_task(api, task, session.project, processes, without=without, model=model)
    report = report.model_copy(update={"policy": str(policy) if policy else None})
    session.show(report.model_dump(mode="json", exclude_none=True), lambda: task_report(report))
    return report.verdict


def _replay_all(
    session: CommandSession,
    tasks: "ManyReplays",
    of_model: tuple[str, "Budget", str] | None,
    expected: set[str],
) -> Exit:
    """Replay every ended task, perhaps by another model; show the report."""
    from counterpoint.cli.replay.many import OtherModelRun
    from counterpoint.cli.replay.markdown import regression_report, summary_report

    reports, failed = tasks.reports, tasks.failed
    if of_model is None:
        tasks.run()
    regression = tasks.regression(OtherModelRun(*of_model)) if of_model else None
    made = [each.model_dump(mode="json", exclude_none=True) for each in reports]
    shown: dict[str, Any] = {"tasks": made, "failed": failed}
    if regression is not None:
        shown["regression"] = regression.model_dump(mode="json", exclude_none=True)
        session.show(shown, lambda: regression_report(regression, reports, failed))
        if regression.stopped:
            return Exit.FAILED
    else:
        session.show(shown, lambda: summary_report(reports, failed))
    verdicts = {each.verdict for each in reports} | ({"broken"} if failed else set())
    return Exit.DONE if verdicts <= expected | {"not replayed", "erased"} else Exit.FAILED


def _of_model(
    model: str | None, usd: float | None, tokens: int | None, *, again: bool
) -> tuple[str, "Budget", str] | None:
    """Return a model, its budget, in dollars if no tokens are named, and its run; None without one. Raises
    `UsageError`."""
    from counterpoint.proto.tasks import Budget

    if model is None:
        if usd is not None or tokens is not None or again:
            raise UsageError("--budget, --tokens and --again need --model")
        return None
    if not model.strip():
        raise UsageError("--model takes the name of a model, such as openai/gpt-4o")
    amount = BUDGET_USD if usd is None and tokens is None else usd
    try:
        budget = Budget(usd=None if amount is None else Decimal(str(amount)), tokens=tokens)
    except ValueError:
        raise UsageError("--budget takes an amount in US dollars, --tokens a number up to 10^12") from None
    return model, budget, uuid4().hex if again else ""


def _check_policy(policy: Path | None) -> None:
    """Refuse a file that is no policy. Raises `UsageError`."""
    if policy is None:
        return
    if not policy.is_file():
        raise UsageError(f"{policy} is not a file")
    try:
        content = json.loads(policy.read_text())
    except ValueError as error:
        raise UsageError(f"{policy} is not valid JSON: {error}") from None
    if not isinstance(content, dict) or not content or not content.keys() <= set(POLICY_PARTS):
        raise UsageError(f"{policy} must be a JSON object with {' or '.join(POLICY_PARTS)}")


def _time(given: str | None) -> datetime | None:
    if given is None:
        return None
    try:
        at = datetime.fromisoformat(given)
    except ValueError:
        raise UsageError(f"--since takes an RFC 3339 time, not {given}") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)

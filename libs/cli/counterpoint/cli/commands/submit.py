"""`counterpoint submit`: submit a task."""

from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import Exit, UsageError
from counterpoint.cli.options import ErrorFile, SessionId, Timeout, parse_job
from counterpoint.cli.session import CommandSession
from counterpoint.cli.task_requests import (
    note_open_failure,
    read_error,
    read_text,
    show_result,
    submit_task,
    wait_for_task,
)

PRIORITIES = ("low", "normal", "high", "urgent")
AUTONOMY = ("supervised", "milestone", "autonomous")
KINDS = ("question", "troubleshoot", "develop", "plan")


@command("submit", Panel.WORK, 'counterpoint submit troubleshoot "The import fails" --error-file import.log --wait')
def submit(
    session: CommandSession,
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"One of {', '.join(KINDS)}.")],
    text: Annotated[str, typer.Argument(metavar="[TEXT|-]", help="The description; - reads standard input.")] = "-",
    error: Annotated[str | None, typer.Option("--error", metavar="TEXT", help="The error message.")] = None,
    error_file: ErrorFile = None,
    title: Annotated[str | None, typer.Option("--title", help="A title.")] = None,
    job: Annotated[str | None, typer.Option("--job", metavar="NS/NAME", help="The affected job.")] = None,
    dataset: Annotated[str | None, typer.Option("--dataset", metavar="NS/NAME", help="The affected data set.")] = None,
    run: Annotated[str | None, typer.Option("--run", metavar="ID", help="The affected run.")] = None,
    system: Annotated[list[str] | None, typer.Option("--system", help="An affected system; repeatable.")] = None,
    priority: Annotated[str | None, typer.Option("--priority", help=f"One of {', '.join(PRIORITIES)}.")] = None,
    autonomy: Annotated[
        str | None, typer.Option("--autonomy", help=f"One of {', '.join(AUTONOMY)}; which acts need an approval.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="USD", help="The most that its model calls may cost.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the task has ended or needs input.")] = False,
    timeout: Timeout = 300.0,
    idempotency_key: Annotated[
        str | None, typer.Option("--idempotency-key", help="Submissions with the same key are one task.")
    ] = None,
    session_id: SessionId = None,
) -> Exit | None:
    """Submit a task."""
    for name, given, allowed in (
        ("KIND", kind, KINDS),
        ("--autonomy", autonomy, AUTONOMY),
        ("--priority", priority, PRIORITIES),
    ):
        if given not in (None, *allowed):
            raise UsageError(f"{name} is one of {', '.join(allowed)}, not {given}")
    if error and error_file:
        raise UsageError("give either --error or --error-file")
    body = {
        "kind": kind,
        "description": read_text(session, text),
        "title": title,
        "error_message": error or read_error(error_file),
        "systems": system or None,
        "target": _target(job, dataset, run),
        "priority": priority,
        "autonomy": autonomy,
        "budget": _budget(budget),
        "session_id": session_id,
        "project": session.project,
    }
    with session.connect() as api:
        accepted = submit_task(api, body, idempotency_key)
        if ignored := accepted.get("ignored"):
            session.note(f"ignored unknown fields: {', '.join(ignored)}")
        if not wait:
            note_open_failure(session, accepted)
            session.show(accepted, lambda: accepted["task_id"])
            return Exit.DONE
        return show_result(session, wait_for_task(session, api, accepted["task_id"], timeout))


def _budget(given: str | None) -> dict[str, str] | None:
    if given is None:
        return None
    try:
        amount = Decimal(given)
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or amount < 0:
        raise UsageError(f"--budget takes an amount in US dollars, such as 2.50, not {given}")
    return {"usd": given}


def _dataset(given: str) -> dict[str, str]:
    """A namespace is an address (`s3://bucket`) or holds no slash; a data set's name may hold some."""
    scheme, mark, rest = given.rpartition("://")
    namespace, slash, name = rest.partition("/")
    if not slash or not namespace or not name:
        raise UsageError(f"a data set is NAMESPACE/NAME, not {given}")
    return {"namespace": f"{scheme}{mark}{namespace}", "name": name}


def _target(job: str | None, dataset: str | None, run: str | None) -> dict[str, Any] | None:
    target = {
        "job": parse_job(job) if job else None,
        "dataset": _dataset(dataset) if dataset else None,
        "run_id": run or None,
    }
    return {name: value for name, value in target.items() if value} or None

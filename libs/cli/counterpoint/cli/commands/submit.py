"""`counterpoint submit`: submit a task."""

from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import Exit, UsageError
from counterpoint.cli.options import ErrorFile, SessionId, Timeout, parse_job
from counterpoint.cli.session import CommandSession
from counterpoint.cli.task_requests import read_error, read_text, show_result, submit_task, wait_for_task

AUTONOMY = ("supervised", "milestone", "autonomous")
KINDS = ("question", "troubleshoot", "develop", "plan")


@command("submit", Panel.WORK, 'counterpoint submit troubleshoot "The import fails" --error-file import.log --wait')
def submit(
    session: CommandSession,
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"One of {', '.join(KINDS)}.")],
    text: Annotated[str, typer.Argument(metavar="[TEXT|-]", help="The description; - reads standard input.")] = "-",
    error_file: ErrorFile = None,
    title: Annotated[str | None, typer.Option("--title", help="A title.")] = None,
    job: Annotated[str | None, typer.Option("--job", metavar="NS/NAME", help="The affected job.")] = None,
    dataset: Annotated[str | None, typer.Option("--dataset", metavar="NS/NAME", help="The affected data set.")] = None,
    run: Annotated[str | None, typer.Option("--run", metavar="ID", help="The affected run.")] = None,
    system: Annotated[list[str] | None, typer.Option("--system", help="An affected system; repeatable.")] = None,
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
    if kind not in KINDS:
        raise UsageError(f"KIND is one of {', '.join(KINDS)}, not {kind}")
    if autonomy not in (None, *AUTONOMY):
        raise UsageError(f"--autonomy is one of {', '.join(AUTONOMY)}, not {autonomy}")
    body = {
        "kind": kind,
        "description": read_text(session, text),
        "title": title,
        "error_message": read_error(error_file),
        "systems": system or None,
        "target": _target(job, dataset, run),
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

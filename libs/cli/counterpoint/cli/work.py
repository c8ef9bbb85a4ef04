"""The commands that give work and say how it went."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import Exit, Misused
from counterpoint.cli.session import Session

if TYPE_CHECKING:
    from counterpoint.cli.api import Api

app = typer.Typer()

KINDS = ("question", "troubleshoot", "develop", "plan")
OUTCOMES = ("succeeded", "failed", "partial")
CAUSES = ("proposal", "something-else", "nothing")
ERROR_CHARS = 16_000


def an_id(given: str) -> str:
    """An id as it may stand in an address. Raises `typer.BadParameter` for what can be none."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", given):
        raise typer.BadParameter("an id is 1 to 64 letters, digits, _ or -")
    return given


TaskId = Annotated[str, typer.Argument(metavar="TASK", help="The task's id.", callback=an_id)]
ErrorFile = Annotated[
    Path | None,
    typer.Option("--error-file", help="A file with the error as it was.", exists=True, dir_okay=False),
]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds to wait at most.", min=0)]


@command(
    app, "submit", Panel.WORK, 'counterpoint submit troubleshoot "The import fails" --error-file import.log --wait'
)
def submit(
    session: Session,
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"One of {', '.join(KINDS)}.")],
    text: Annotated[str, typer.Argument(metavar="[TEXT|-]", help="What it is about; - reads standard input.")] = "-",
    error_file: ErrorFile = None,
    title: Annotated[str | None, typer.Option("--title", help="A title.")] = None,
    job: Annotated[str | None, typer.Option("--job", metavar="NS/NAME", help="The job it is about.")] = None,
    dataset: Annotated[
        str | None, typer.Option("--dataset", metavar="NS/NAME", help="The data set it is about.")
    ] = None,
    run: Annotated[str | None, typer.Option("--run", metavar="ID", help="The run it is about.")] = None,
    system: Annotated[list[str] | None, typer.Option("--system", help="A system it is about; repeatable.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has ended or waits for input.")] = False,
    timeout: Timeout = 300.0,
    idempotency_key: Annotated[
        str | None, typer.Option("--idempotency-key", help="The same key twice is the same task.")
    ] = None,
) -> Exit | None:
    """Hand in a task."""
    if kind not in KINDS:
        raise Misused(f"KIND is one of {', '.join(KINDS)}, not {kind}")
    body = {
        "kind": kind,
        "description": _text(session, text),
        "title": title,
        "error_message": _error(error_file),
        "systems": system or None,
        "target": _target(job, dataset, run),
        "project": session.project,
    }
    with session.connect() as api:
        accepted = _submit(api, body, idempotency_key)
        if ignored := accepted.get("ignored"):
            session.note(f"ignored, for nobody knows them: {', '.join(ignored)}")
        if not wait:
            session.show(accepted, lambda: accepted["task_id"])
            return Exit.DONE
        return _shown(session, _waited(session, api, accepted["task_id"], timeout))


@command(app, "ask", Panel.WORK, 'counterpoint ask "Who owns the orders file?"')
def ask(
    session: Session,
    text: Annotated[str, typer.Argument(metavar="TEXT|-", help="The question; - reads standard input.")],
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the answer.")] = True,
    timeout: Timeout = 300.0,
) -> Exit | None:
    """Ask a question; prints the answer with its citations."""
    body = {"kind": "question", "description": _text(session, text), "project": session.project}
    with session.connect() as api:
        task_id = _submit(api, body, None)["task_id"]
        if not wait:
            session.show({"task_id": task_id}, lambda: task_id)
            return Exit.DONE
        return _shown(session, _waited(session, api, task_id, timeout))


@command(
    app,
    "outcome",
    Panel.WORK,
    'counterpoint outcome TASK succeeded --by something-else --note "Unlocked the user"',
)
def outcome(
    session: Session,
    task: TaskId,
    result: Annotated[str, typer.Argument(metavar="|".join(OUTCOMES), help="How the attempt went.")],
    attempt: Annotated[int | None, typer.Option("--attempt", min=1, help="Which one, else the latest.")] = None,
    note: Annotated[str | None, typer.Option("--note", help="What was done or seen.")] = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="|".join(CAUSES),
            help="What a success is due to: the proposal (unless said otherwise), something else (--note says what), "
            "or nothing, it recovered by itself.",
        ),
    ] = None,
    not_same: Annotated[
        list[str] | None,
        typer.Option(
            "--not-same",
            metavar="ATTEMPT",
            help="An earlier attempt that was shown and is of another failure; repeatable.",
        ),
    ] = None,
    error_file: ErrorFile = None,
) -> Exit:
    """Say how an attempt went, and what fixed it.

    Where the proposal is not what helped, say so: --by something-else --note "WHAT HELPED". The note is learned then,
    and the proposal is not.
    """
    if result not in OUTCOMES:
        raise Misused(f"an outcome is one of {', '.join(OUTCOMES)}, not {result}")
    if by is not None and by.replace("_", "-") not in CAUSES:
        raise Misused(f"--by is one of {', '.join(CAUSES)}, not {by}")
    body = {
        "outcome": result,
        "attempt": attempt,
        "note": note,
        "by": by.replace("-", "_") if by else None,
        "not_same": not_same or None,
        "error_message": _error(error_file),
    }
    with session.connect() as api:
        reply = api.post(f"/v1/tasks/{task}/outcome", body, project=session.project)
    if result == "succeeded" and by is None and note:
        session.note("a proposal is credited with it; where something else helped, report it with --by something-else")
    if body["by"] == "something_else" and not note:
        session.note("what helped is learned only with --note")
    return _noted(session, reply, f"{task}: {result}, noted")


@command(app, "override", Panel.WORK, 'counterpoint override TASK "Check the firewall" --reason "DNS was looked at"')
def override(
    session: Session,
    task: TaskId,
    text: Annotated[str, typer.Argument(metavar="TEXT|-", help="The instruction; - reads standard input.")],
    reason: Annotated[str, typer.Option("--reason", help="Why.")],
    constraint: Annotated[
        list[str] | None, typer.Option("--constraint", help="What must hold meanwhile; repeatable.")
    ] = None,
    confidence_override: Annotated[
        bool, typer.Option("--confidence-override", help="Go on whatever the confidence is.")
    ] = False,
) -> Exit:
    """Give an instruction that outranks the developer's judgement."""
    body = {
        "instruction": _text(session, text),
        "reasoning": reason,
        "constraints": constraint or [],
        "confidence_override": confidence_override,
    }
    with session.connect() as api:
        reply = api.post(f"/v1/tasks/{task}/override", body, project=session.project)
    return _noted(session, reply, f"{task}: goes on under the override")


@command(app, "cancel", Panel.WORK, 'counterpoint cancel TASK --reason "fixed by hand"')
def cancel(
    session: Session,
    task: TaskId,
    reason: Annotated[str | None, typer.Option("--reason", help="Why.")] = None,
) -> Exit:
    """Call a task off."""
    with session.connect() as api:
        reply = api.post(f"/v1/tasks/{task}/cancel", {"reason": reason}, project=session.project)
    return _noted(session, reply, f"{task}: cancellation asked for")


def _text(session: Session, given: str) -> str:
    if given == "-" and sys.stdin.isatty():
        session.note("reading the text from the terminal; Ctrl-D ends it")
    text = sys.stdin.read() if given == "-" else given
    if not text.strip():
        raise Misused("the text is empty")
    return text


def _error(file: Path | None) -> str | None:
    """The error in a file. Raises Misused for more than a message takes."""
    text = file.read_text(errors="replace") if file else None
    if text and len(text) > ERROR_CHARS:
        raise Misused(
            f"{file} holds {len(text)} characters, an error at most {ERROR_CHARS}: cut it down to what failed, "
            "and hand in the rest by `counterpoint ingest`"
        )
    return text


def job_of(given: str) -> dict[str, str]:
    """Return the job of NAMESPACE/NAME: a namespace may hold slashes, a name does not. Raises Misused."""
    namespace, slash, name = given.rpartition("/")
    if not slash or not namespace or not name:
        raise Misused(f"a job is NAMESPACE/NAME, not {given}")
    return {"namespace": namespace, "name": name}


def _dataset(given: str) -> dict[str, str]:
    """A namespace is an address (`s3://bucket`) or holds no slash; a data set's name may hold some."""
    scheme, mark, rest = given.rpartition("://")
    namespace, slash, name = rest.partition("/")
    if not slash or not namespace or not name:
        raise Misused(f"a data set is NAMESPACE/NAME, not {given}")
    return {"namespace": f"{scheme}{mark}{namespace}", "name": name}


def _target(job: str | None, dataset: str | None, run: str | None) -> dict[str, Any] | None:
    target = {
        "job": job_of(job) if job else None,
        "dataset": _dataset(dataset) if dataset else None,
        "run_id": run or None,
    }
    return {name: value for name, value in target.items() if value} or None


def _noted(session: Session, reply: dict[str, Any], said: str) -> Exit:
    """What was said about a task counts, or comes too late for it."""
    late = bool(reply.get("late"))
    session.show(reply, lambda: f"{reply['task_id']} has ended ({reply['state']}): no effect" if late else said)
    return Exit.FAILED if late else Exit.DONE


def _submit(api: "Api", body: dict[str, Any], idempotency_key: str | None) -> dict[str, Any]:
    accepted: dict[str, Any] = api.post_once("/v1/tasks", body, idempotency_key)
    return accepted


def _waited(session: Session, api: "Api", task_id: str, timeout_s: float) -> dict[str, Any]:
    """The task as soon as it has ended or waits for input, or as it is when the time is over."""
    import time

    from counterpoint.cli.api import WAIT_S

    session.note(f"waiting for {task_id}")
    deadline = time.monotonic() + timeout_s
    while True:
        left = deadline - time.monotonic()
        wait = int(max(0, min(WAIT_S, left)))
        task: dict[str, Any] = api.get(f"/v1/tasks/{task_id}", wait=wait, project=session.project)
        if task["state"] not in ("submitted", "working") or left <= WAIT_S:
            return task


def _shown(session: Session, task: dict[str, Any]) -> Exit:
    from counterpoint.cli.card import rendered

    session.show(task, lambda: rendered(task, session.out))
    match task["state"]:
        case "completed":
            return Exit.DONE
        case "input_required":
            return Exit.WAITING
        case "failed" | "cancelled":
            return Exit.FAILED
        case working:
            again = session.command("show", task["task_id"], project=task["project"])
            session.note(f"{task['task_id']} is still {working}; `{again}` looks again")
            return Exit.FAILED

"""The commands that look at tasks, at what is known, and at what rests on what."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import Misused
from counterpoint.cli.listing import by_submission, by_urgency, title
from counterpoint.cli.projects import note_others
from counterpoint.cli.session import Session
from counterpoint.cli.table import table, when
from counterpoint.cli.work import TaskId

if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer()

FORMATS = ("terminal", "markdown", "plain")
_ESCALATIONS = 200
_VOUCHED = 2
"""Escalations that are ordered by urgency before the first of them are shown."""
STATES = ("submitted", "working", "input_required", "completed", "failed", "cancelled")

Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")]
AsOf = Annotated[
    str | None, typer.Option("--as-of", metavar="COMMIT|TIME", help="As it was right after a commit, or at a time.")
]
Job = Annotated[str, typer.Argument(metavar="JOB", help="NAMESPACE/NAME of a job.")]


@command(app, "tasks", Panel.LOOK, "counterpoint tasks --state input_required")
def tasks(
    session: Session,
    state: Annotated[str | None, typer.Option("--state", help="Only those in this state.")] = None,
    limit: Limit = 50,
) -> None:
    """List the tasks that changed last, the latest submitted first."""
    if state is not None and state not in STATES:
        raise Misused(f"a state is one of {', '.join(STATES)}, not {state}")
    with session.connect() as api:
        found = api.pages("/v1/tasks", limit, state=state, project=session.project)
        note_others(session, api, "tasks")
    session.show(
        found,
        lambda: table(
            ("submitted", "state", "kind", "task", "about"),
            [
                (
                    when(task.get("submitted_at")),
                    task["state"] + (f" ({task['waiting_for']})" if task.get("waiting_for") else ""),
                    task["kind"],
                    task["task_id"],
                    title(task),
                )
                for task in by_submission(found["items"])
            ],
            "no tasks",
        ),
    )


@command(app, "show", Panel.LOOK, "counterpoint show TASK")
def show(
    session: Session,
    task: TaskId,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="With the numbers, what was searched for, and all that is folded.")
    ] = False,
    format_: Annotated[
        str | None, typer.Option("--format", metavar="|".join(FORMATS), help="Else by where it is printed.")
    ] = None,
) -> None:
    """Show one task as a card: what failed, what is known, what to do next."""
    if format_ is not None and format_ not in FORMATS:
        raise Misused(f"a format is one of {', '.join(FORMATS)}, not {format_}")
    with session.connect() as api:
        found = api.get(f"/v1/tasks/{task}", project=session.project)

    def human() -> "RenderableType":
        from counterpoint.cli.card import Format, rendered

        return rendered(found, session.out, verbose=verbose, form=Format(format_) if format_ else None)

    session.show(found, human)


@command(app, "why", Panel.LOOK, "counterpoint why TASK")
def why(session: Session, task: TaskId, as_of: AsOf = None) -> None:
    """Show the line of a task: who reasoned what, on what basis, leading to what."""
    with session.connect() as api:
        line = api.get(f"/v1/tasks/{task}/line", project=session.project, as_of=as_of)

    def human() -> "RenderableType":
        from counterpoint.cli.tree import drawn

        return drawn(line, session.out.width if session.out.is_terminal else None)

    session.show(line, human)


@command(app, "search", Panel.LOOK, 'counterpoint search "resolver timed out" -n 5')
def search(
    session: Session,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to look for.")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=200, help="How many at most.")] = 10,
    vector_weight: Annotated[
        float | None,
        typer.Option("--vector-weight", min=0, max=1, help="1 is meaning alone, 0 words alone; else by type."),
    ] = None,
    also: Annotated[list[str] | None, typer.Option("--also", help="Another wording, or a part; repeatable.")] = None,
    type_: Annotated[str | None, typer.Option("--type", help="Only texts of this type.")] = None,
    under: Annotated[str | None, typer.Option("--under", help="Only sources that begin so: a folder.")] = None,
    since: Annotated[str | None, typer.Option("--since", metavar="TIME", help="Only what was written since.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Only what was written before.")] = None,
    metadata: Annotated[
        list[str] | None, typer.Option("--metadata", metavar="NAME=VALUE", help="Only documents with it; repeatable.")
    ] = None,
    neighbours: Annotated[int, typer.Option("--neighbours", min=0, max=3, help="Passages around each.")] = 0,
    as_of: AsOf = None,
) -> None:
    """Search the documents by words and by meaning."""
    if not text.strip():
        raise Misused("the text is empty")
    where: dict[str, Any] = {"type": type_} if type_ else {}
    if metadata:
        where["metadata"] = dict(_pair(each) for each in metadata)
    body = {
        "text": text, "k": limit, "vector_weight": vector_weight, "also": also, "where": where or None, "under": under,
        "since": since, "until": until, "neighbours": neighbours or None, "as_of": as_of,
    }  # fmt: skip
    with session.connect() as api:
        found = api.post("/v1/search", body, project=session.project)
    session.show(found, lambda: "\n\n".join(_passage(item) for item in found["items"]) or "nothing found")


@command(app, "attempts", Panel.LOOK, 'counterpoint attempts --error "DNS lookup timed out"')
def attempts(
    session: Session,
    error: Annotated[str | None, typer.Option("--error", help="Those for this error, then for ones like it.")] = None,
    job: Annotated[str | None, typer.Option("--job", metavar="NS/NAME", help="Those about a job.")] = None,
    limit: Limit = 50,
) -> None:
    """List what was tried before, and how it went."""
    with session.connect() as api:
        found = api.pages("/v1/attempts", limit, error=error, job=job, project=session.project)
    session.show(
        found,
        lambda: table(
            ("when", "outcome", "by", "tried", "task"),
            [
                (
                    when(one.get("decided_at") or one["at"]),
                    f"{one['outcome']} ({one['evidence']})" if one["outcome"] != "unknown" else "unknown",
                    one.get("override_by") or one["by"],
                    one.get("summary") or one["tried"],
                    f"{one['task_id']} #{one['attempt']}",
                )
                for one in found["items"]
            ],
            "no attempts",
        ),
    )


@command(app, "escalations", Panel.LOOK, "counterpoint escalations")
def escalations(session: Session, limit: Limit = 50) -> None:
    """List the tasks that wait for somebody, incidents before questions, and what would let them go on."""
    with session.connect() as api:
        wanted = limit if session.json else max(limit, _ESCALATIONS)
        found = api.pages("/v1/escalations", wanted, project=session.project)
        note_others(session, api, "escalations")

    def human() -> "RenderableType":
        blocks = []
        for task in by_urgency(found["items"])[:limit]:
            escalation = task.get("escalation") or {}
            head = f"{task['task_id']}  {title(task)}"
            asked = f"  {escalation.get('code')}, asks {escalation.get('to')}"
            needs = [f"  {need['kind']}: {need['what']}\n    {need['how']}" for need in escalation.get("needs", ())]
            blocks.append("\n".join([head, asked, *needs]))
        if len(found["items"]) > limit:
            blocks.append(f"and {len(found['items']) - limit} more")
        return "\n\n".join(blocks) or "nobody is needed"

    session.show(found, human)


@command(app, "recoveries", Panel.LOOK, "counterpoint recoveries")
def recoveries(session: Session, limit: Limit = 50) -> None:
    """List the tasks that recovered and nobody has said why, and the command that says it."""
    with session.connect() as api:
        found = api.pages("/v1/recoveries", limit, project=session.project)

    def human() -> "RenderableType":
        blocks = []
        for task in found["items"]:
            needs = [f"  {need['what']}\n    {need['how']}" for need in task.get("needs", ())]
            blocks.append("\n".join([f"{task['task_id']}  {task.get('title') or task['description']}", *needs]))
        return "\n\n".join(blocks) or "nothing has recovered without a reason"

    session.show(found, human)


@command(app, "lineage", Panel.LOOK, "counterpoint lineage file/orders_ingest.fetch_orders --direction down")
def lineage(
    session: Session,
    job: Job,
    depth: Annotated[int, typer.Option("--depth", min=1, max=100, help="How many hops.")] = 20,
    direction: Annotated[str, typer.Option("--direction", metavar="up|down|both", help="Which way.")] = "both",
) -> None:
    """Show what a job reads and writes, and what comes before and after it."""
    if direction not in ("up", "down", "both"):
        raise Misused(f"a direction is up, down or both, not {direction}")
    with session.connect() as api:
        found = api.get(f"{_job_path(job)}/lineage", depth=depth, direction=direction, project=session.project)
    session.show(
        found,
        lambda: table(
            ("hops", "kind", "namespace", "name", "owner"),
            [
                (
                    f"{place['hops']:+d}" if place["hops"] else "0",
                    place["node"]["kind"],
                    place["node"]["namespace"],
                    place["node"]["name"],
                    place.get("owner") or "",
                )
                for place in sorted(found["nodes"], key=lambda place: place["hops"])
            ],
            "nothing is known of it",
            truncated=found.get("truncated", False),
        ),
    )


@command(app, "blast-radius", Panel.LOOK, "counterpoint blast-radius --memory runbook.md")
def blast_radius(
    session: Session,
    job: Annotated[str | None, typer.Argument(metavar="JOB", help="NAMESPACE/NAME of a job.")] = None,
    memory: Annotated[
        str | None,
        typer.Option("--memory", metavar="ITEM", help="Of a memory: STORE/ID, STORE/ID@VERSION, a document's source."),
    ] = None,
    depth: Annotated[int, typer.Option("--depth", min=1, max=100, help="How many hops, of a job.")] = 20,
    shown: Annotated[
        bool, typer.Option("--shown", help="Of a memory also what it was only shown to; a take-back leaves that alone.")
    ] = False,
) -> None:
    """Show what rests on a job, and whose it is; or what used a memory: items, decisions and tasks."""
    if (job is None) == (memory is None):
        raise Misused("give either JOB or --memory ITEM")
    with session.connect() as api:
        if memory is not None:
            rests = api.get("/v1/blast-radius", item=memory, shown=shown or None, project=session.project)
            session.show(rests, lambda: _resting(rests))
            return
        found = api.get(f"{_job_path(job or '')}/blast-radius", depth=depth, project=session.project)
    session.show(
        found,
        lambda: table(
            ("hops", "by", "kind", "namespace", "name", "owner"),
            [
                (str(row["hops"]), row["edge"], row["kind"], row["namespace"], row["name"], row.get("owner") or "")
                for row in found["downstream"]
            ],
            "nothing rests on it",
            truncated=found.get("truncated", False),
        ),
    )


def _resting(found: dict[str, Any]) -> "RenderableType":
    return table(
        ("hops", "by", "store", "id", "task"),
        [
            (
                str(each["hops"]),
                "used" if each["cited"] else "shown",
                each["store"],
                f"{each['id']}@{each['version']}",
                each.get("task_id") or "",
            )
            for each in found["items"]
        ],
        "nothing rests on it",
        truncated=found["truncated"],
    )


def _passage(item: dict[str, Any]) -> str:
    where = f"{item['source']}, characters {item['start']} to {item['end']}"
    vouched = "" if item["integrity"] >= _VOUCHED else ", nobody trusted has vouched for it"
    return f"{item['score']:.2f}  {where}{vouched}\n{item['text'].strip()}"


def _job_path(job: str) -> str:
    from urllib.parse import quote

    namespace, slash, name = job.rpartition("/")
    if not slash or not namespace or not name:
        raise Misused(f"a job is NAMESPACE/NAME, not {job}")
    return f"/v1/jobs/{quote(namespace, safe='')}/{quote(name, safe='')}"


def _pair(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not name or not equals:
        raise Misused(f"metadata is NAME=VALUE, not {given}")
    return name, value

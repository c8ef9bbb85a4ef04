"""`counterpoint principal create`: create a principal."""

from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import UsageError
from counterpoint.cli.projects import ALL
from counterpoint.cli.session import CommandSession

KINDS = ("person", "agent", "system")
ROLES = ("submit", "report", "read", "ingest", "override", "approve", "operate", "audit", "admin")


@command("create", Panel.OPERATE, "counterpoint principal create airflow --kind system --role submit -p orders")
def create(
    session: CommandSession,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The principal's name.")],
    kind: Annotated[str, typer.Option("--kind", metavar="|".join(KINDS), help="Its kind.")] = "system",
    role: Annotated[
        list[str] | None, typer.Option("--role", metavar="ROLE", help=f"Repeatable: {', '.join(ROLES)}.")
    ] = None,
    projects: Annotated[
        list[str] | None,
        typer.Option("--in", metavar="PROJECT", help="A project, or * for all; repeatable. Default: --project."),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Its token is refused from this time on, RFC 3339.")
    ] = None,
) -> None:
    """Create a principal and print its token, which cannot be shown again."""
    if kind not in KINDS:
        raise UsageError(f"a kind is one of {', '.join(KINDS)}, not {kind}")
    if unknown := set(role or ()) - set(ROLES):
        raise UsageError(f"a role is one of {', '.join(ROLES)}, not {', '.join(sorted(unknown))}")
    within_projects = projects or ([session.project] if session.project else None)
    if not role or not within_projects:
        raise UsageError("a principal needs at least one --role and one --in PROJECT")
    with session.connect() as api:
        fields = {"name": name, "kind": kind, "roles": role, "projects": within_projects, "expires_at": until}
        reply = api.post("/v1/principals", fields)
    if not session.json:
        for project in (each for each in within_projects if each != ALL):
            view = f"`counterpoint tasks --project {project}`, `counterpoint watch --project {project}`"
            session.note(f"to see the work of {name} in project {project}: {view}")
        session.note("store the token now; it is shown only once:")
    session.show(reply, lambda: str(reply["token"]))

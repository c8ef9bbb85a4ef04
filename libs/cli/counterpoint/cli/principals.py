"""The commands on principals: who may ask, and for what."""

from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import Misused
from counterpoint.cli.look import Limit
from counterpoint.cli.projects import ALL
from counterpoint.cli.session import Session
from counterpoint.cli.table import table, when

app = typer.Typer(help="Who may ask, and for what: create, list, revoke.", no_args_is_help=True)

KINDS = ("person", "agent", "system")
ROLES = ("submit", "report", "read", "ingest", "override", "approve", "operate", "audit", "admin")


@command(app, "create", Panel.OPERATE, "counterpoint principal create airflow --kind system --role submit -p orders")
def create(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the principal is called.")],
    kind: Annotated[str, typer.Option("--kind", metavar="|".join(KINDS), help="What it is.")] = "system",
    role: Annotated[
        list[str] | None, typer.Option("--role", metavar="ROLE", help=f"Repeatable: {', '.join(ROLES)}.")
    ] = None,
    projects: Annotated[
        list[str] | None, typer.Option("--in", metavar="PROJECT", help="Repeatable; * is all. Else --project.")
    ] = None,
) -> None:
    """Make a principal; prints its token, once."""
    if kind not in KINDS:
        raise Misused(f"a kind is one of {', '.join(KINDS)}, not {kind}")
    if unknown := set(role or ()) - set(ROLES):
        raise Misused(f"a role is one of {', '.join(ROLES)}, not {', '.join(sorted(unknown))}")
    within = projects or ([session.project] if session.project else None)
    if not role or not within:
        raise Misused("a principal needs at least one --role and one --in PROJECT")
    with session.connect() as api:
        made = api.post("/v1/principals", {"name": name, "kind": kind, "roles": role, "projects": within})
    if not session.json:
        for project in (each for each in within if each != ALL):
            seen = f"`counterpoint tasks --project {project}`, `counterpoint watch --project {project}`"
            session.note(f"the work of {name} is seen in project {project}: {seen}")
        session.note("keep the token, it is shown once:")
    session.show(made, lambda: str(made["token"]))


@command(app, "list", Panel.OPERATE, "counterpoint principal list")
def listed(session: Session, limit: Limit = 50) -> None:
    """List the principals."""
    with session.connect() as api:
        found = api.pages("/v1/principals", limit)
    session.show(
        found,
        lambda: table(
            ("name", "kind", "projects", "roles", "created", "revoked"),
            [
                (
                    one["name"],
                    one["kind"],
                    ", ".join(one["projects"]),
                    ", ".join(one["roles"]),
                    when(one.get("created_at")),
                    when(one.get("revoked_at")),
                )
                for one in found["items"]
            ],
            "no principals",
        ),
    )


@command(app, "revoke", Panel.OPERATE, "counterpoint principal revoke airflow")
def revoke(session: Session, name: Annotated[str, typer.Argument(metavar="NAME", help="Whose token ends.")]) -> None:
    """Take a principal's rights away for good."""
    with session.connect() as api:
        reply = api.delete(f"/v1/principals/{name}")
    session.show(reply or {"name": name, "revoked": True}, lambda: f"{name}: revoked")

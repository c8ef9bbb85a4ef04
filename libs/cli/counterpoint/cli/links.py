"""The commands that correct which incidents are the same failure, and the list of what was corrected."""

from typing import Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import Misused
from counterpoint.cli.look import Limit
from counterpoint.cli.session import Session
from counterpoint.cli.work import an_id

app = typer.Typer()


def _ids(given: list[str]) -> list[str]:
    return [an_id(each) for each in given]


Incidents = Annotated[
    list[str],
    typer.Argument(metavar="INCIDENT...", help="Two or more tasks, or attempts at them.", callback=_ids),
]
Reason = Annotated[str | None, typer.Option("--reason", help="Why; it is kept with it.")]
Undo = Annotated[bool, typer.Option("--undo", help="Take back what was said of these.")]


@command(app, "link", Panel.WORK, 'counterpoint link INCIDENT INCIDENT --reason "same certificate"')
def link(session: Session, incidents: Incidents, reason: Reason = None, undo: Undo = False) -> None:
    """Say that incidents are the same failure: what fixed one is proposed for the others."""
    _relate(session, "same", incidents, reason, undo, "the same failure")


@command(app, "split", Panel.WORK, 'counterpoint split INCIDENT INCIDENT --reason "another table"')
def split(session: Session, incidents: Incidents, reason: Reason = None, undo: Undo = False) -> None:
    """Say that incidents are different failures: none is shown for another again."""
    _relate(session, "different", incidents, reason, undo, "different failures")


@command(app, "merge", Panel.WORK, "counterpoint merge INCIDENT INCIDENT")
def merge(session: Session, incidents: Incidents, reason: Reason = None, undo: Undo = False) -> None:
    """Handle incidents as parts of the first: they ask nobody, and its success is theirs."""
    _relate(session, "merged", incidents, reason, undo, "merged into {0}")


@command(app, "links", Panel.LOOK, "counterpoint links INCIDENT")
def links(
    session: Session,
    incident: Annotated[str | None, typer.Argument(metavar="[INCIDENT]", help="A task; all without one.")] = None,
    limit: Limit = 50,
) -> None:
    """Show what was said of which incidents."""
    with session.connect() as api:
        found = api.pages("/v1/links", limit, task_id=incident, project=session.project)
    session.show(found, lambda: "\n".join(map(_line, found["items"])) or "nothing is linked")


def _relate(session: Session, relation: str, incidents: list[str], reason: str | None, undo: bool, said: str) -> None:
    if len(incidents) < 2:
        raise Misused("name two incidents or more")
    with session.connect() as api:
        if undo:
            done = api.delete("/v1/links", relation=relation, task=incidents, project=session.project)
        else:
            body = {"relation": relation, "tasks": incidents, "reason": reason}
            done = api.post("/v1/links", body, project=session.project)

    def human() -> str:
        if undo:
            return "taken back"
        verb = {"same": "link", "different": "split", "merged": "merge"}[relation]
        again = session.command(verb, *incidents, "--undo", project=done["items"][0]["project"])
        return f"{_named(relation, incidents)}: {said.format(*incidents)}; undo it with `{again}`"

    session.show(done, human)


def _named(relation: str, incidents: list[str]) -> str:
    return ", ".join(incidents[1:] if relation == "merged" else incidents)


def _line(each: dict[str, Any]) -> str:
    one, other = (side["task_id"] for side in each["pair"])
    how = {"same": "is the same as", "different": "is not", "merged": "takes in"}.get(each["relation"], "?")
    reason = f": {each['reason']}" if each.get("reason") else ""
    return f"{one} {how} {other} ({each['by']}, {each['at'][:10]}){reason}"

"""Links between incidents: the request that creates or removes them."""

from typing import Annotated

import typer

from counterpoint.cli.errors import UsageError
from counterpoint.cli.options import check_id
from counterpoint.cli.session import CommandSession


def _ids(given: list[str]) -> list[str]:
    for each in given:
        check_id(each)
    return given


Incidents = Annotated[
    list[str],
    typer.Argument(metavar="INCIDENT...", help="Two or more tasks, or attempts at them.", callback=_ids),
]


Reason = Annotated[str | None, typer.Option("--reason", help="The reason, which is recorded.")]


Undo = Annotated[bool, typer.Option("--undo", help="Undo the declaration.")]


def relate(
    session: CommandSession, relation: str, incidents: list[str], reason: str | None, undo: bool, note: str
) -> None:
    if len(incidents) < 2:
        raise UsageError("give at least two incidents")
    with session.connect() as api:
        if undo:
            reply = api.delete("/v1/links", relation=relation, task=incidents, project=session.project)
        else:
            body = {"relation": relation, "tasks": incidents, "reason": reason}
            reply = api.post("/v1/links", body, project=session.project)

    def human() -> str:
        if undo:
            return "undone"
        verb = {"same": "link", "different": "split", "merged": "merge"}[relation]
        again = session.command(verb, *incidents, "--undo", project=reply["items"][0]["project"])
        return f"{_command(relation, incidents)}: {note.format(*incidents)}; undo it with `{again}`"

    session.show(reply, human)


def _command(relation: str, incidents: list[str]) -> str:
    return ", ".join(incidents[1:] if relation == "merged" else incidents)

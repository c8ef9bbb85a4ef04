"""`counterpoint reembed`: change the embedding model."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import Exit, UsageError
from counterpoint.cli.session import CommandSession

if TYPE_CHECKING:
    from counterpoint.cli.api import ApiClient


_LOOK_S = 0.5


@command("reembed", Panel.OPERATE, "counterpoint reembed minilm-l6-v2 --switch")
def reembed(
    session: CommandSession,
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL]", help="minilm-l6-v2-int8, minilm-l6-v2, file:/DIR or provider/model[@dimensions]."
        ),
    ] = None,
    switch: Annotated[bool, typer.Option("--switch", help="Activate the model when its vectors are complete.")] = False,
    unindexed: Annotated[
        bool, typer.Option("--unindexed", help="Switch even if a large project has no index yet.")
    ] = False,
    rollback: Annotated[bool, typer.Option("--rollback", help="Reactivate the previous model.")] = False,
    drop: Annotated[bool, typer.Option("--drop", help="Delete the inactive vectors.")] = False,
) -> Exit:
    """Change the embedding model of all projects. The present one stays in use until the switch.

    Memory computes the vectors in the background, also after a restart. Without arguments show the models and the
    progress.
    """
    if sum((switch, rollback, drop)) > 1:
        raise UsageError("give only one of --switch, --rollback and --drop")
    with session.connect() as api:
        if rollback or drop:
            return _told(session, api.post("/v1/reembed", _asked("rollback" if rollback else "drop", model, session)))
        if model is not None:
            found = api.post("/v1/reembed", _asked("begin", model, session))
        else:
            found = api.get("/v1/reembed", project=session.project)
            if not switch:
                return _told(session, found)
        try:
            found = _followed(session, api, found)
        except KeyboardInterrupt:
            session.note("embedding continues in the background; `counterpoint reembed` shows the progress")
            raise
        if switch:
            found = api.post("/v1/reembed", _asked("switch", model, session) | {"unindexed": unindexed})
    return _told(session, found)


def _asked(act: str, model: str | None, session: CommandSession) -> dict[str, Any]:
    asked = {"act": act, "model": model, "project": session.project}
    return {name: value for name, value in asked.items() if value is not None}


def _followed(session: CommandSession, api: "ApiClient", found: dict[str, Any]) -> dict[str, Any]:
    """Wait until the other model's vectors are complete, saying how far they are."""
    shown = None
    while found["state"] == "filling":
        told = f"{found['vectors'] + found['refused']} of {found['of']} vectors"
        if found.get("problem"):
            told += f"; waiting: {found['problem']}"
        if told != shown:
            session.note(told)
            shown = told
        time.sleep(_LOOK_S)
        found = api.get("/v1/reembed", project=session.project)
    return found


def _told(session: CommandSession, found: dict[str, Any]) -> Exit:
    session.show(found, lambda: _said(found))
    return Exit.DONE


def _said(found: dict[str, Any]) -> str:
    lines = [f"active model: {found['active']}"]
    counted = f"{found['vectors']} of {found['of']} vectors"
    match found["state"]:
        case "none":
            lines[0] += f": {counted}"
        case "filling":
            lines.append(f"{found['other']} is being prepared: {counted}")
        case "ready":
            lines.append(f"{found['other']} is ready: {counted}; `counterpoint reembed --switch` activates it")
        case _:
            lines.append(
                f"{found['other']} is kept: {counted}; `counterpoint reembed --rollback` reactivates it, --drop "
                "deletes it"
            )
    if found["refused"]:
        lines.append(f"{found['refused']} records have no vector and are found only by their words:")
        lines += [
            f"  {each['project']} {each['store']}/{each['id']}: {each['reason']}" for each in found["refused_records"]
        ]
    if found["unindexed"]:
        lines.append(f"no index yet: {', '.join(found['unindexed'])}")
    if found.get("problem"):
        lines.append(f"waiting: {found['problem']}")
    return "\n".join(lines)

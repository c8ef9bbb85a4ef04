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
            return _show(session, api.post("/v1/reembed", _request("rollback" if rollback else "drop", model, session)))
        if model is not None:
            reply = api.post("/v1/reembed", _request("begin", model, session))
        else:
            reply = api.get("/v1/reembed", project=session.project)
            if not switch:
                return _show(session, reply)
        try:
            reply = _wait(session, api, reply)
        except KeyboardInterrupt:
            session.note("embedding continues in the background; `counterpoint reembed` shows the progress")
            raise
        if switch:
            reply = api.post("/v1/reembed", _request("switch", model, session) | {"unindexed": unindexed})
    return _show(session, reply)


def _request(act: str, model: str | None, session: CommandSession) -> dict[str, Any]:
    body = {"act": act, "model": model, "project": session.project}
    return {name: value for name, value in body.items() if value is not None}


def _wait(session: CommandSession, api: "ApiClient", reply: dict[str, Any]) -> dict[str, Any]:
    """Wait until the other model's vectors are complete, saying how far they are."""
    printed = None
    while reply["state"] == "filling":
        progress = f"{reply['vectors'] + reply['refused']} of {reply['of']} vectors"
        if reply.get("problem"):
            progress += f"; waiting: {reply['problem']}"
        if progress != printed:
            session.note(progress)
            printed = progress
        time.sleep(_LOOK_S)
        reply = api.get("/v1/reembed", project=session.project)
    return reply


def _show(session: CommandSession, reply: dict[str, Any]) -> Exit:
    session.show(reply, lambda: _progress(reply))
    return Exit.DONE


def _progress(reply: dict[str, Any]) -> str:
    lines = [f"active model: {reply['active']}"]
    counted = f"{reply['vectors']} of {reply['of']} vectors"
    match reply["state"]:
        case "none":
            lines[0] += f": {counted}"
        case "filling":
            lines.append(f"{reply['other']} is being prepared: {counted}")
        case "ready":
            lines.append(f"{reply['other']} is ready: {counted}; `counterpoint reembed --switch` activates it")
        case _:
            lines.append(
                f"{reply['other']} is kept: {counted}; `counterpoint reembed --rollback` reactivates it, --drop "
                "deletes it"
            )
    if reply["refused"]:
        lines.append(f"{reply['refused']} records have no vector and are found only by their words:")
        lines += [
            f"  {each['project']} {each['store']}/{each['id']}: {each['reason']}" for each in reply["refused_records"]
        ]
    if reply["unindexed"]:
        lines.append(f"no index yet: {', '.join(reply['unindexed'])}")
    if reply.get("problem"):
        lines.append(f"waiting: {reply['problem']}")
    return "\n".join(lines)

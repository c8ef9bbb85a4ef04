"""`counterpoint status`: show the state of a stack."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.data_folder import reject_url
from counterpoint.cli.errors import Exit
from counterpoint.cli.session import CommandSession

if TYPE_CHECKING:
    from counterpoint.local.up import Status


@command("status", Panel.OPERATE, "counterpoint status")
def status(
    session: CommandSession,
    settings: Annotated[bool, typer.Option("--settings", help="Also show the settings of each service.")] = False,
) -> Exit | None:
    """Show the state of a stack. Exit code 3: it does not run; 1: a part of it does not answer."""
    from counterpoint.local import up as local

    reject_url(session)
    folder = session.place.folder()
    state = local.status(folder)
    report: dict[str, Any] = {"data_dir": str(folder)} | state.model_dump()
    in_force = local.settings(folder) if settings and state.services else {}
    session.show(
        report | ({"settings": in_force} if settings else {}),
        lambda: "\n".join([_status(str(folder), state), *_settings(in_force)]),
    )
    if not state.running:
        return Exit.NOT_REACHABLE
    parts = {**state.services, **state.engines}
    return Exit.DONE if parts and all(parts.values()) else Exit.FAILED


def _settings(in_force: dict[str, dict[str, Any]]) -> list[str]:
    return [
        f"  {service:<10} {name}={'' if value is None else value}"
        for service, settings in in_force.items()
        for name, value in settings.items()
    ]


def _status(folder: str, state: "Status") -> str:
    if not state.running:
        return f"nothing runs on {folder}; start it with `counterpoint up --data-dir {folder}`"
    if not state.services:
        return f"{folder}: process {state.pid} is starting"
    waits = {name: f"NOT READY: waiting for {', '.join(missing)}" for name, missing in state.waiting_for.items()}
    parts = [(name, "ready" if ready else waits.get(name, "NOT READY")) for name, ready in state.services.items()]
    parts += [(name, "runs" if running else "GONE") for name, running in state.engines.items()]
    return "\n".join([f"{folder}: process {state.pid}", *(f"  {name:<10} {text}" for name, text in parts)])

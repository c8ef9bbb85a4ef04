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
    found = local.status(folder)
    shown: dict[str, Any] = {"data_dir": str(folder)} | found.model_dump()
    in_force = local.settings(folder) if settings and found.services else {}
    session.show(
        shown | ({"settings": in_force} if settings else {}),
        lambda: "\n".join([_status(str(folder), found), *_settings(in_force)]),
    )
    if not found.running:
        return Exit.NOT_REACHABLE
    parts = {**found.services, **found.engines}
    return Exit.DONE if parts and all(parts.values()) else Exit.FAILED


def _settings(in_force: dict[str, dict[str, Any]]) -> list[str]:
    return [
        f"  {service:<10} {name}={'' if value is None else value}"
        for service, settings in in_force.items()
        for name, value in settings.items()
    ]


def _status(folder: str, found: "Status") -> str:
    if not found.running:
        return f"nothing runs on {folder}; start it with `counterpoint up --data-dir {folder}`"
    if not found.services:
        return f"{folder}: process {found.pid} is starting"
    waits = {name: f"NOT READY: waiting for {', '.join(missing)}" for name, missing in found.waiting_for.items()}
    parts = [(name, "ready" if ready else waits.get(name, "NOT READY")) for name, ready in found.services.items()]
    parts += [(name, "runs" if lives else "GONE") for name, lives in found.engines.items()]
    return "\n".join([f"{folder}: process {found.pid}", *(f"  {name:<10} {state}" for name, state in parts)])

"""The commands that start, stop and check a stack."""

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import Exit, Misused
from counterpoint.cli.session import Session

if TYPE_CHECKING:
    from rich.console import RenderableType

    from counterpoint.local.endpoints import Endpoints
    from counterpoint.local.up import Status

app = typer.Typer()


@command(app, "up", Panel.OPERATE, "counterpoint up --detach")
def up(
    session: Session,
    host: Annotated[
        str | None,
        typer.Option("--host", help="Where the HTTP and OpenLineage APIs listen: 0.0.0.0 for containers and others."),
    ] = None,
    http_port: Annotated[
        int | None, typer.Option("--http-port", min=0, max=65535, help="8484 if not given; 0 takes a free one.")
    ] = None,
    lineage_port: Annotated[
        int | None, typer.Option("--lineage-port", min=0, max=65535, help="Of OpenLineage; a free one if not given.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return when all is ready.")] = False,
    inspect: Annotated[bool, typer.Option("--inspect", help="Leave a read-only login of PostgreSQL.")] = False,
) -> None:
    """Start the engines and the five services; shows the live decision stream until Ctrl-C."""
    from counterpoint.local import up as local
    from counterpoint.local.endpoints import read_endpoints
    from counterpoint.local.listening import listening

    _no_url(session)
    folder = session.place.folder()
    addresses = listening(os.environ, host=host, http_port=http_port, lineage_port=lineage_port)
    quiet_logs()

    async def ready(endpoints: "Endpoints") -> None:
        session.line(endpoints.model_dump(exclude_none=True), lambda: _where(endpoints))
        shown = f"project {session.project}" if session.project else "every project that a principal is for"
        session.note(f"showing the decisions of {shown}; Ctrl-C stops all of it")
        await _decisions(session, endpoints)

    local.up(
        folder,
        listening=addresses,
        inspect=inspect,
        detach=detach,
        progress=lambda stage, seconds: session.note(f"{stage:<12} {seconds:5.1f} s"),
        on_ready=None if detach else ready,
    )
    if detach:
        endpoints = read_endpoints(folder)
        session.show(endpoints.model_dump(exclude_none=True), lambda: _where(endpoints))


@command(app, "down", Panel.OPERATE, "counterpoint down")
def down(session: Session) -> None:
    """Stop the stack of a data folder, and wait for its end."""
    from counterpoint.local import up as local

    _no_url(session)
    folder = session.place.folder()
    stopped = local.down(folder)
    session.show(
        {"data_dir": str(folder), "stopped": stopped},
        lambda: f"stopped what ran on {folder}" if stopped else f"nothing ran on {folder}",
    )


@command(app, "status", Panel.OPERATE, "counterpoint status")
def status(
    session: Session,
    settings: Annotated[bool, typer.Option("--settings", help="Also the settings in force, of each service.")] = False,
) -> Exit | None:
    """Say what runs on a data folder; exit code 3 when nothing does, 1 when a part of it does not answer."""
    from counterpoint.local import up as local

    _no_url(session)
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


def quiet_logs() -> None:
    """Send the supervisor's log events of this process to standard error, from warnings up."""
    import logging
    import sys

    import structlog

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _no_url(session: Session) -> None:
    if session.url:
        raise Misused("this command is about a data folder: --data-dir, not --url")


async def _decisions(session: Session, endpoints: "Endpoints") -> None:
    """Print decisions until cancelled. The thread ends with the stream, which ends with the router."""
    from counterpoint.cli.address import Address
    from counterpoint.cli.watch import follow_all

    stopped = threading.Event()
    try:
        await asyncio.to_thread(follow_all, session, Address(endpoints.http, endpoints.token), stopped)
    finally:
        stopped.set()


def _where(endpoints: "Endpoints") -> "RenderableType":
    from rich.table import Table
    from rich.text import Text

    rows: list[tuple[str, str]] = [
        ("HTTP API", endpoints.http),
        ("OpenAPI", f"{endpoints.http}/openapi.json"),
        ("OpenLineage", f"{endpoints.lineage}/api/v1/lineage"),
        ("NATS", endpoints.nats),
    ]
    if (postgres := endpoints.engines.get("postgres")) and postgres.dsn:
        rows.append(("PostgreSQL", postgres.dsn))
    table = Table.grid(padding=(0, 2))
    for name, where in rows:
        table.add_row(Text(name, style="bold"), Text(where))
    return table


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
    waits = {name: f"NOT READY: waits for {', '.join(missing)}" for name, missing in found.waiting_for.items()}
    parts = [(name, "ready" if ready else waits.get(name, "NOT READY")) for name, ready in found.services.items()]
    parts += [(name, "runs" if lives else "GONE") for name, lives in found.engines.items()]
    return "\n".join([f"{folder}: process {found.pid}", *(f"  {name:<10} {state}" for name, state in parts)])

"""`counterpoint up`: start a stack."""

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.data_folder import quiet_logs, reject_url
from counterpoint.cli.session import CommandSession

if TYPE_CHECKING:
    from rich.console import RenderableType

    from counterpoint.local.endpoints import Endpoints


@command("up", Panel.OPERATE, "counterpoint up --detach")
def up(
    session: CommandSession,
    host: Annotated[
        str | None,
        typer.Option(
            "--host",
            help="Listen address of the HTTP and OpenLineage APIs; 0.0.0.0 makes them reachable from containers.",
        ),
    ] = None,
    http_port: Annotated[
        int | None,
        typer.Option(
            "--http-port", min=0, max=65535, help="Port of the HTTP API. Default: 8484; 0 chooses a free port."
        ),
    ] = None,
    lineage_port: Annotated[
        int | None,
        typer.Option("--lineage-port", min=0, max=65535, help="Port of the OpenLineage API. Default: a free port."),
    ] = None,
    tls_cert: Annotated[
        str | None,
        typer.Option("--tls-cert", help="PEM file of a certificate chain; both APIs then speak TLS. Needs --tls-key."),
    ] = None,
    tls_key: Annotated[str | None, typer.Option("--tls-key", help="PEM file of its private key.")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return when the stack is ready.")] = False,
    inspect: Annotated[bool, typer.Option("--inspect", help="Create a read-only login of PostgreSQL.")] = False,
) -> None:
    """Start the engines and the five services, and follow decisions until Ctrl-C."""
    from counterpoint.local import up as local
    from counterpoint.local.doctor.variables import examine_names
    from counterpoint.local.endpoints import read_endpoints
    from counterpoint.local.listen_addresses import exposure, listen_addresses

    reject_url(session)
    folder = session.place.folder()
    addresses = listen_addresses(
        os.environ, host=host, http_port=http_port, lineage_port=lineage_port, tls_cert=tls_cert, tls_key=tls_key
    )
    quiet_logs()
    warnings = [(each.detail, each.remedy) for each in examine_names(os.environ)]
    for risk, remedy in filter(None, (exposure(addresses), *warnings)):
        session.note(f"warning: {risk}: {remedy}")

    async def ready(endpoints: "Endpoints") -> None:
        session.line(endpoints.model_dump(exclude_none=True), lambda: _where(endpoints))
        shown = f"project {session.project}" if session.project else "project default and those that principals name"
        session.note(f"showing the decisions of {shown}; Ctrl-C stops the stack")
        await _decisions(session, endpoints)

    local.up(
        folder,
        addresses=addresses,
        inspect=inspect,
        detach=detach,
        progress=lambda stage, seconds: session.note(f"{stage:<12} {seconds:5.1f} s"),
        on_ready=None if detach else ready,
    )
    if detach:
        endpoints = read_endpoints(folder)
        session.show(endpoints.model_dump(exclude_none=True), lambda: _where(endpoints))


async def _decisions(session: CommandSession, endpoints: "Endpoints") -> None:
    """Print decisions until cancelled. The thread ends with the stream, which ends with the router."""
    from counterpoint.cli.address import address_of
    from counterpoint.cli.decisions import follow_all

    stopped = threading.Event()
    try:
        await asyncio.to_thread(follow_all, session, address_of(endpoints), stopped)
    finally:
        stopped.set()


def _where(endpoints: "Endpoints") -> "RenderableType":
    from rich.table import Table
    from rich.text import Text

    rows: list[tuple[str, str]] = [
        ("Console", f"{endpoints.http}/ (sign in: counterpoint console)"),
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

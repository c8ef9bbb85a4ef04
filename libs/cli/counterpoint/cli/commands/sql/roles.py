"""`counterpoint sql roles`: the SQL that creates roles and database."""

from pathlib import Path
from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.data_folder import reject_url
from counterpoint.cli.session import CommandSession


@command("roles", Panel.OPERATE, "counterpoint sql roles --output roles.sql")
def roles(
    session: CommandSession,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="The file to write, readable by you alone. Default: standard output."),
    ] = None,
) -> None:
    """Print the SQL with which an administrator creates our roles, database and pgvector on a server of your own.

    It contains passwords, which are in secrets.json of the data folder; a missing one is created. Afterwards set
    COUNTERPOINT_POSTGRES_URL to the server without a login, postgresql://db.example.com:5432.
    """
    from counterpoint.local.credentials import load_credentials
    from counterpoint.local.postgres import roles_sql
    from counterpoint.local.private_files import private_folder, write_private
    from counterpoint.local.service import NATS_USERS

    reject_url(session)
    folder = private_folder(session.place.folder())
    sql = roles_sql(load_credentials(folder / "secrets.json", NATS_USERS).postgres)
    if output is not None:
        write_private(output, sql)
        session.show({"file": str(output)}, lambda: f"{output} contains passwords: delete it when it has been run")
    elif session.json:
        session.show({"sql": sql}, lambda: sql)
    else:
        print(sql, end="")

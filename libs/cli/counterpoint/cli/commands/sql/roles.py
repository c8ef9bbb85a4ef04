"""`counterpoint sql roles`: the SQL that creates roles and database."""

from counterpoint.cli.command import Panel, command
from counterpoint.cli.data_folder import print_private, reject_url
from counterpoint.cli.options import PrivateOutput
from counterpoint.cli.session import CommandSession


@command("roles", Panel.OPERATE, "counterpoint sql roles --output roles.sql")
def roles(
    session: CommandSession,
    output: PrivateOutput = None,
) -> None:
    """Print the SQL with which an administrator creates our roles, database and pgvector on a server of your own.

    It contains passwords, which are in secrets.json of the data folder; a missing one is created. Afterwards set
    COUNTERPOINT_POSTGRES_URL to the server without a login, postgresql://db.example.com:5432.
    """
    from counterpoint.local.credentials import load_credentials
    from counterpoint.local.postgres import roles_sql
    from counterpoint.local.private_files import private_folder
    from counterpoint.local.service import NATS_USERS

    reject_url(session)
    folder = private_folder(session.place.folder())
    passwords = load_credentials(folder / "secrets.json", NATS_USERS).postgres
    print_private(session, "sql", roles_sql(passwords), output)

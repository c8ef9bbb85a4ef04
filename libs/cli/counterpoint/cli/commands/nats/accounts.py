"""`counterpoint nats accounts`: the accounts, users and permissions of the bus."""

from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.data_folder import print_private, reject_url
from counterpoint.cli.options import PrivateOutput
from counterpoint.cli.session import CommandSession


@command("accounts", Panel.OPERATE, "counterpoint nats accounts --output accounts.conf")
def accounts(
    session: CommandSession,
    output: PrivateOutput = None,
    nsc: Annotated[bool, typer.Option("--nsc", help="Commands of nsc, for a server with an operator.")] = False,
) -> None:
    """Print the `accounts` block for the configuration of a NATS server of your own.

    It contains passwords, which are in secrets.json of the data folder; a missing one is created. Include the file in
    the server's configuration, which also needs `jetstream {}`, reload it, and set COUNTERPOINT_NATS_URL.

    With --nsc: print a shell script for a server with an operator. It contains no secrets. Run it where nsc has the
    operator, with a folder for the credentials files, and name that folder by COUNTERPOINT_NATS_CREDS.
    """
    from counterpoint.local.credentials import load_credentials
    from counterpoint.local.nats import policy_authorization
    from counterpoint.local.private_files import private_folder
    from counterpoint.local.service import NATS_USERS
    from counterpoint.local.settings import local_settings

    reject_url(session)
    if nsc:
        from counterpoint.bus.nsc import nsc_script

        print_private(session, "nsc", nsc_script(local_settings().publishers), output)
        return
    folder = private_folder(session.place.folder())
    users = tuple(dict.fromkeys((*NATS_USERS, *local_settings().publishers)))
    passwords = load_credentials(folder / "secrets.json", users).nats
    print_private(session, "accounts", policy_authorization(passwords), output)

"""`counterpoint nats accounts`: the accounts, users and permissions of the bus."""

from counterpoint.cli.command import Panel, command
from counterpoint.cli.data_folder import print_private, reject_url
from counterpoint.cli.options import PrivateOutput
from counterpoint.cli.session import CommandSession


@command("accounts", Panel.OPERATE, "counterpoint nats accounts --output accounts.conf")
def accounts(
    session: CommandSession,
    output: PrivateOutput = None,
) -> None:
    """Print the `accounts` block for the configuration of a NATS server of your own.

    It contains passwords, which are in secrets.json of the data folder; a missing one is created. Include the file in
    the server's configuration, which also needs `jetstream {}`, reload it, and set COUNTERPOINT_NATS_URL.
    """
    from counterpoint.local.credentials import load_credentials
    from counterpoint.local.private_files import private_folder
    from counterpoint.local.service import NATS_USERS
    from counterpoint.local.settings import local_settings
    from counterpoint.local.stack import policy_authorization

    reject_url(session)
    folder = private_folder(session.place.folder())
    users = tuple(dict.fromkeys((*NATS_USERS, *local_settings().publishers)))
    passwords = load_credentials(folder / "secrets.json", users).nats
    print_private(session, "accounts", policy_authorization(passwords), output)

"""`counterpoint nats accounts`: the accounts, users and permissions of the bus."""

from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.data_folder import print_private, reject_url
from counterpoint.cli.errors import UsageError
from counterpoint.cli.options import PrivateOutput
from counterpoint.cli.session import CommandSession


@command("accounts", Panel.OPERATE, "counterpoint nats accounts --output accounts.conf")
def accounts(
    session: CommandSession,
    output: PrivateOutput = None,
    nsc: Annotated[bool, typer.Option("--nsc", help="Commands of nsc, for a server with an operator.")] = False,
    new_keys: Annotated[
        bool, typer.Option("--new-keys", help="With --nsc: give the services other keys, and revoke those they have.")
    ] = False,
    user: Annotated[
        list[str] | None,
        typer.Option("--user", help="With --new-keys, also a publisher or observer; repeatable."),
    ] = None,
    certificates: Annotated[
        bool,
        typer.Option("--certificates", help="Without passwords, for a server that takes the user from a certificate."),
    ] = False,
) -> None:
    """Print the `accounts` block for the configuration of a NATS server of your own.

    It contains passwords, which are in secrets.json of the data folder; a missing one is created. Include the file in
    the server's configuration, which also needs `jetstream {}`, reload it, and set COUNTERPOINT_NATS_URL.

    With --certificates it contains no passwords: the server's configuration needs `tls { verify_and_map: true }`, and
    the DNS name of each client certificate is the user. The services of one `counterpoint up` cannot log in so.

    With --nsc: print a shell script for a server with an operator. It contains no secrets. Run it where nsc has the
    operator, with a folder for the credentials files, and name that folder by COUNTERPOINT_NATS_CREDS. Before the
    accounts of a script with --new-keys are published, run `counterpoint rotate bus --apply` with its files.
    """
    from counterpoint.local.credentials import load_credentials
    from counterpoint.local.nats import policy_authorization
    from counterpoint.local.private_files import private_folder
    from counterpoint.local.service import NATS_USERS, SERVICES
    from counterpoint.local.settings import local_settings

    reject_url(session)
    users = tuple(dict.fromkeys((*NATS_USERS, *local_settings().publishers)))
    if user and not new_keys:
        raise UsageError("--user needs --new-keys")
    if unknown := sorted(set(user or ()) - set(users)):
        raise UsageError(f"unknown user {unknown[0]}; there are {', '.join(sorted(users))}")
    if nsc and certificates:
        raise UsageError("--certificates is for a server without an operator, --nsc for one with it: give one of them")
    if nsc:
        from counterpoint.bus.nsc import nsc_script

        renewed = {"provisioner", *SERVICES, *(user or ())} if new_keys else set()
        print_private(session, "nsc", nsc_script(local_settings().publishers, renewed), output)
        return
    if new_keys:
        raise UsageError("--new-keys needs --nsc; new passwords are made by `counterpoint rotate bus`")
    if certificates:
        print_private(session, "accounts", policy_authorization(None), output)
        return
    folder = private_folder(session.place.folder())
    passwords = load_credentials(folder / "secrets.json", users).nats
    print_private(session, "accounts", policy_authorization(passwords), output)

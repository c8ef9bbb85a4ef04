"""`counterpoint rotate bus`: new logins of the services on the bus."""

from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.data_folder import reject_url, stored_credentials
from counterpoint.cli.errors import UsageError
from counterpoint.cli.session import CommandSession


@command("bus", Panel.OPERATE, "counterpoint rotate bus")
def bus(
    session: CommandSession,
    user: Annotated[
        list[str] | None,
        typer.Option("--user", help="Also that of a publisher or observer; repeatable. Other systems then need it."),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Make no new ones: the server knows those of secrets.json, or of the files.")
    ] = False,
) -> None:
    """Give the services new passwords on the bus, one service after the other, while the stack runs.

    For a NATS server of your own the command only writes them to secrets.json, and says what to do next. Credentials
    files of a server with an operator, and client certificates, are made there: with --apply the services take them.
    """
    from counterpoint.local.credentials import store_credentials
    from counterpoint.local.endpoints import read_endpoints
    from counterpoint.local.lock import is_locked
    from counterpoint.local.roll import roll
    from counterpoint.local.service import SERVICES
    from counterpoint.local.settings import local_settings

    reject_url(session)
    folder, credentials = stored_credentials(session)
    if unknown := sorted(set(user or ()) - credentials.nats.keys()):
        raise UsageError(f"unknown user {unknown[0]}; there are {', '.join(sorted(credentials.nats))}")
    users = tuple(dict.fromkeys(("provisioner", *SERVICES, *(user or ()))))
    is_running = is_locked(folder)
    endpoints = read_endpoints(folder) if is_running else None
    embedded = endpoints is None or "nats" in endpoints.engines
    if endpoints is None:
        has_files = bool(local_settings().nats_url and local_settings().nats_creds)
    else:
        has_files = any(login.creds for login in endpoints.users.values())
    if has_files and not apply:
        raise UsageError(
            "the services have credentials files, which the operator of the server makes: run the script of"
            " `counterpoint nats accounts --nsc --new-keys`, put its files into the folder COUNTERPOINT_NATS_CREDS, run"
            " this with --apply, then `nsc push --all`"
        )
    if not apply:
        store_credentials(folder / "secrets.json", credentials.with_new_passwords(users))
    in_force = is_running and (embedded or apply)
    if in_force:
        say = lambda stage: session.note(f"{stage} replaced")  # noqa: E731
        roll(folder, SERVICES, migrate=False, new_passwords=True, progress=say)
    when = "in force" if in_force else "in force at the next start"
    if not in_force and not embedded:
        when = "in secrets.json: give the server `counterpoint nats accounts`, reload it, and run this with --apply"
    result = {"users": [] if apply else list(users), "in_force": in_force}
    kind = "credentials files" if has_files else "passwords"
    session.show(result, lambda: f"{kind} of {', '.join(users)}: {when}")

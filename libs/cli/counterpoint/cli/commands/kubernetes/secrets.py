"""`counterpoint kubernetes secrets`: the Secrets that the chart expects."""

from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.data_folder import print_private, reject_url
from counterpoint.cli.errors import UsageError
from counterpoint.cli.options import PrivateOutput
from counterpoint.cli.session import CommandSession

FullName = Annotated[str, typer.Option("--fullname", help="The prefix of all names in the chart.")]
Namespace = Annotated[str | None, typer.Option("--namespace", help="Their namespace. Default: that of kubectl.")]


@command("secrets", Panel.OPERATE, "counterpoint kubernetes secrets --output manifests.json")
def secrets(
    session: CommandSession,
    fullname: FullName = "counterpoint",
    namespace: Namespace = None,
    output: PrivateOutput = None,
) -> None:
    """Print the Secrets that the chart expects, for `kubectl apply --filename`.

    The passwords and keys are those in secrets.json of the data folder; missing ones are created. The addresses of the
    engines, as pods of the cluster reach them, are in COUNTERPOINT_POSTGRES_URL (without a login),
    COUNTERPOINT_VALKEY_URL, COUNTERPOINT_QDRANT_URL and COUNTERPOINT_QDRANT_API_KEY. With COUNTERPOINT_NATS_CREDS, the
    folder of credentials files of a NATS server with an operator, they hold those in place of passwords of the bus.
    """
    import json
    import os

    from counterpoint.local.credentials import load_credentials
    from counterpoint.local.kubernetes import EngineUrls, secret_list
    from counterpoint.local.nats import policy_authorization
    from counterpoint.local.private_files import private_folder
    from counterpoint.local.service import NATS_USERS
    from counterpoint.local.settings import local_settings

    reject_url(session)
    settings = local_settings()
    if not settings.postgres_url:
        raise UsageError(
            "set COUNTERPOINT_POSTGRES_URL to PostgreSQL in the cluster, without a login: "
            "postgresql://counterpoint-postgres-rw:5432"
        )
    engines = EngineUrls(
        settings.postgres_url,
        settings.valkey_url,
        os.environ.get("COUNTERPOINT_QDRANT_URL"),
        os.environ.get("COUNTERPOINT_QDRANT_API_KEY"),
        settings.nats_creds,
    )
    folder = private_folder(session.place.folder())
    users = tuple(dict.fromkeys((*NATS_USERS, *settings.publishers)))
    credentials = load_credentials(folder / "secrets.json", users)
    try:
        made = secret_list(credentials, engines, policy_authorization(credentials.nats), fullname, namespace)
    except OSError as error:
        raise UsageError(f"COUNTERPOINT_NATS_CREDS: {error.filename}: {error.strerror}") from error
    print_private(session, "secrets", json.dumps(made, indent=2) + "\n", output)

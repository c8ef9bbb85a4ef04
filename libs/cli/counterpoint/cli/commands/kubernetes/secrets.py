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


@command("secrets", Panel.OPERATE, "counterpoint kubernetes secrets --output secrets.json")
def secrets(
    session: CommandSession,
    fullname: FullName = "counterpoint",
    namespace: Namespace = None,
    output: PrivateOutput = None,
) -> None:
    """Print the Secrets that the chart expects, for `kubectl apply --filename`.

    The passwords and keys are those in secrets.json of the data folder; missing ones are created. The addresses of the
    engines, as pods of the cluster reach them, are in COUNTERPOINT_POSTGRES_URL (without a login),
    COUNTERPOINT_VALKEY_URL, COUNTERPOINT_QDRANT_URL and COUNTERPOINT_QDRANT_API_KEY.
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
    )
    folder = private_folder(session.place.folder())
    users = tuple(dict.fromkeys((*NATS_USERS, *settings.publishers)))
    credentials = load_credentials(folder / "secrets.json", users)
    made = secret_list(credentials, engines, policy_authorization(credentials.nats), fullname, namespace)
    print_private(session, "secrets", json.dumps(made, indent=2) + "\n", output)

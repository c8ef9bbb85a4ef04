"""`counterpoint kubernetes secrets`: the Secrets that the chart expects."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.data_folder import print_private, reject_url
from counterpoint.cli.errors import UsageError
from counterpoint.cli.options import PrivateOutput
from counterpoint.cli.session import CommandSession

FullName = Annotated[str, typer.Option("--fullname", help="The prefix of all names in the chart.")]
Namespace = Annotated[str | None, typer.Option("--namespace", help="Their namespace. Default: that of kubectl.")]
Authority = Annotated[
    Path | None,
    typer.Option("--nats-ca", help="PEM file of a CA: client certificates in place of passwords of the bus."),
]
AuthorityKey = Annotated[Path | None, typer.Option("--nats-ca-key", help="PEM file of its private key.")]
Issuer = Annotated[
    str | None,
    typer.Option("--nats-issuer", metavar="[KIND/]NAME", help="The Issuer or ClusterIssuer of cert-manager instead."),
]
if TYPE_CHECKING:
    from counterpoint.local.kubernetes import NatsLogin


@command("secrets", Panel.OPERATE, "counterpoint kubernetes secrets --output manifests.json")
def secrets(
    session: CommandSession,
    fullname: FullName = "counterpoint",
    namespace: Namespace = None,
    nats_ca: Authority = None,
    nats_ca_key: AuthorityKey = None,
    nats_issuer: Issuer = None,
    output: PrivateOutput = None,
) -> None:
    """Print the Secrets that the chart expects, for `kubectl apply --filename`.

    The passwords and keys are those in secrets.json of the data folder; missing ones are created. The addresses of the
    engines, as pods of the cluster reach them, are in COUNTERPOINT_POSTGRES_URL (without a login),
    COUNTERPOINT_VALKEY_URL, COUNTERPOINT_QDRANT_URL and COUNTERPOINT_QDRANT_API_KEY. With COUNTERPOINT_NATS_CREDS, the
    folder of credentials files of a NATS server with an operator, they hold those in place of passwords of the bus.

    For nats.login=certificate they hold new client certificates, signed by the key of a CA, or Certificates of
    cert-manager are printed beside them, for nats.certificatePrefix. Their DNS name is the user of the bus.
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
        _login(settings.nats_creds, nats_ca, nats_ca_key, nats_issuer),
    )
    folder = private_folder(session.place.folder())
    users = tuple(dict.fromkeys((*NATS_USERS, *settings.publishers)))
    credentials = load_credentials(folder / "secrets.json", users)
    by_certificate = bool(nats_ca or nats_issuer)
    accounts = policy_authorization(None if by_certificate else credentials.nats)
    try:
        made = secret_list(credentials, engines, accounts, fullname, namespace)
    except OSError as error:
        raise UsageError(f"COUNTERPOINT_NATS_CREDS: {error.filename}: {error.strerror}") from error
    print_private(session, "secrets", json.dumps(made, indent=2) + "\n", output)


def _login(creds: Path | None, ca: Path | None, ca_key: Path | None, issuer: str | None) -> "NatsLogin":
    """Return how the services log in on the bus. Raises `UsageError` for options that contradict each other."""
    from counterpoint.local.nats_certificates import CertificateAuthority, CertificateIssuer
    from counterpoint.proto.errors import Permanent

    if (ca is None) != (ca_key is None):
        raise UsageError("give --nats-ca and --nats-ca-key together")
    if sum(each is not None for each in (creds, ca, issuer)) > 1:
        raise UsageError(
            "COUNTERPOINT_NATS_CREDS, --nats-ca and --nats-issuer are logins of their own: give one of them"
        )
    try:
        if ca and ca_key:
            return CertificateAuthority.load(ca, ca_key)
        return CertificateIssuer.parse(issuer) if issuer else creds
    except Permanent as error:
        raise UsageError("; ".join(f"--{each.field}: {each.problem}" for each in error.problems)) from error

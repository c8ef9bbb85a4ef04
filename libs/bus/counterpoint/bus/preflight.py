"""Checks of a NATS server before anything is created on it: `python -m counterpoint.bus.preflight`."""

import asyncio
import json
import ssl
import time

import nats
import nats.errors
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import AccountInfo
from nats.js.errors import APIError, NotFoundError, ServiceUnavailableError
from pydantic import ValidationError

from counterpoint.bus.check_result import CheckResult, clock_result, print_results
from counterpoint.bus.provision import stream_differences
from counterpoint.bus.settings import ProvisionSettings
from counterpoint.bus.stream_api import server_time
from counterpoint.bus.streams import StreamSpec, consumer_specs, stream_specs
from counterpoint.guard.policy import policy
from counterpoint.proto import subjects

CHECK = "nats"
_USERS = "include the accounts of `counterpoint nats accounts` in its configuration"
_CERTIFICATES = (
    "set `verify_and_map: true` in its `tls` block, include the accounts of "
    "`counterpoint nats accounts --certificates`, and log in with a certificate whose DNS name is the user"
)
_TIMEOUT_S = 5


async def examine(settings: ProvisionSettings) -> list[CheckResult]:
    """Check the login of the provisioner, JetStream, its limits, streams of the same names, and the clock."""
    failures: list[Exception] = []

    async def failed(error: Exception) -> None:
        failures.append(error)

    try:
        login = settings.login()
    except (OSError, ValueError) as error:
        remedy = "name a file that `nsc generate creds` wrote"
        return [CheckResult.failed(CHECK, str(error), f"{remedy} by COUNTERPOINT_NATS_CREDS")]
    try:
        client = await nats.connect(
            settings.nats_url,
            **login,
            inbox_prefix=subjects.inbox_prefix(settings.nats_user).encode(),
            connect_timeout=_TIMEOUT_S,
            allow_reconnect=False,
            # The first connection is also retried, by default for minutes; 0 means without limit.
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            error_cb=failed,
            tls=settings.tls(),
        )
    except (nats.errors.Error, OSError, ssl.SSLError, TimeoutError, ValueError) as error:
        reason = failures[-1] if isinstance(error, nats.errors.NoServersError) and failures else error
        return [_unreachable(settings, reason)]
    try:
        version = client.connected_server_version
        reached = CheckResult.ok(
            CHECK, f"server {version.major}.{version.minor}.{version.patch}, login {settings.nats_user}"
        )
        return [reached, *await _jetstream(client, settings.streams_bytes)]
    finally:
        await client.close()


def _unreachable(settings: ProvisionSettings, error: BaseException) -> CheckResult:
    where = f"{settings.nats_url}: {str(error) or type(error).__name__}"
    text = str(error).lower()
    if "authorization" in text or "authentication" in text:
        by_certificate = settings.nats_password is None and settings.nats_creds is None
        return CheckResult.failed(
            CHECK, f"{where} (login {settings.nats_user})", _CERTIFICATES if by_certificate else _USERS
        )
    # Of a client without the certificate that it asks for, a server only closes the connection.
    closed = isinstance(error, ConnectionError | nats.errors.UnexpectedEOF) and settings.nats_ca is not None
    if closed or isinstance(error, ssl.SSLError | FileNotFoundError) or "certificate" in text or "tls" in text:
        remedy = (
            "name the CA of its certificate by COUNTERPOINT_NATS_CA, an absolute path, and its host as certified; "
            "a client certificate that it asks for by COUNTERPOINT_NATS_CERT and _KEY"
        )
        return CheckResult.failed(CHECK, where, remedy)
    return CheckResult.failed(CHECK, where, "start the server, or correct COUNTERPOINT_NATS_URL")


async def _jetstream(client: Client, streams_bytes: int) -> list[CheckResult]:
    name, js = f"{CHECK} jetstream", client.jetstream(timeout=_TIMEOUT_S)
    try:
        account = await js.account_info()
    except (APIError, ServiceUnavailableError, NotFoundError, nats.errors.Error, TimeoutError) as error:
        detail = f"the account of the provisioner has no JetStream: {error}"
        remedy = "enable it: `jetstream {}` in the server's configuration, `jetstream: enabled` in the account"
        return [CheckResult.failed(name, detail, remedy)]
    specs = stream_specs(streams_bytes)
    found = [_limits(name, account, streams_bytes, len(specs))]
    for spec in specs:
        compared = await _stream(js, spec)
        if compared and len(found) == 1:
            found += await _clock(client, spec.name)
        found += compared
    return found


def _limits(check: str, account: AccountInfo, streams_bytes: int, streams: int) -> CheckResult:
    limits = account.limits
    wanted = {
        "max_storage": (limits.max_storage, streams_bytes),
        "max_streams": (limits.max_streams, streams),
        "max_consumers": (limits.max_consumers, len(consumer_specs(policy()))),
    }
    short = [f"{name} is {has}, needed {need}" for name, (has, need) in wanted.items() if 0 <= has < need]
    if short:
        return CheckResult.failed(
            check, "; ".join(short), "raise these limits of the account, or lower COUNTERPOINT_STREAMS_BYTES"
        )
    return CheckResult.ok(check, "enabled, and the limits of the account suffice")


async def _stream(js: JetStreamContext, spec: StreamSpec) -> list[CheckResult]:
    """Compare a stream of the same name, if there is one."""
    check = f"{CHECK} stream {spec.name}"
    try:
        info = await js.stream_info(spec.name)
    except NotFoundError:
        return []
    except (APIError, nats.errors.Error, TimeoutError) as error:
        return [CheckResult.failed(check, str(error) or type(error).__name__, _USERS)]
    differences = stream_differences(spec, info.config)
    if differences:
        remedy = "it may belong to something else: use another account, or delete the stream if nobody needs it"
        return [CheckResult.failed(check, "; ".join(differences), remedy)]
    return [CheckResult.ok(check, f"{info.state.messages} messages")]


async def _clock(client: Client, stream: str) -> list[CheckResult]:
    """Compare the server's clock with this machine's, by the reply to a request about a stream; a refusal has none."""
    sent = time.time()
    reply = json.loads((await client.request(f"$JS.API.STREAM.INFO.{stream}", timeout=_TIMEOUT_S)).data)
    if "ts" not in reply:
        return []
    return [clock_result(f"{CHECK} clock", server_time(reply["ts"]).timestamp() - (sent + time.time()) / 2)]


def main() -> None:
    """Examine the server that the environment variables name."""
    try:
        settings = ProvisionSettings()
    except ValidationError as invalid:
        reasons = "; ".join(each["msg"].removeprefix("Value error, ") for each in invalid.errors())
        print_results([CheckResult.failed(CHECK, reasons, "correct the variables of the bus")])
    else:
        print_results(asyncio.run(examine(settings)))


if __name__ == "__main__":
    main()

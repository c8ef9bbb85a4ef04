"""Checks of a NATS server before anything is created on it: `python -m counterpoint.bus.preflight`."""

import asyncio
import json
import time

import nats.errors
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import AccountInfo
from nats.js.errors import APIError, NotFoundError, ServiceUnavailableError
from pydantic import ValidationError

from counterpoint.bus.check_result import CheckResult, clock_result, print_results
from counterpoint.bus.login import ACCOUNTS_REMEDY, CHECK, UNREACHABLE, connect_once, unreachable
from counterpoint.bus.provision import stream_differences
from counterpoint.bus.settings import ProvisionSettings
from counterpoint.bus.stream_api import server_time
from counterpoint.bus.streams import StreamSpec, consumer_specs, stream_specs
from counterpoint.guard.policy import policy

_TIMEOUT_S = 5


async def examine(settings: ProvisionSettings) -> list[CheckResult]:
    """Check the login of the provisioner, JetStream, its limits, streams of the same names, and the clock."""
    try:
        login = settings.login()
    except (OSError, ValueError) as error:
        remedy = "name a file that `nsc generate creds` wrote"
        return [CheckResult.failed(CHECK, str(error), f"{remedy} by COUNTERPOINT_NATS_CREDS")]
    try:
        client = await connect_once(settings, login)
    except UNREACHABLE as error:
        return [unreachable(settings, error)]
    try:
        version = client.connected_server_version
        reached = CheckResult.ok(
            CHECK, f"server {version.major}.{version.minor}.{version.patch}, login {settings.nats_user}"
        )
        return [reached, *await _jetstream(client, settings.streams_bytes)]
    finally:
        await client.close()


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
        return [CheckResult.failed(check, str(error) or type(error).__name__, ACCOUNTS_REMEDY)]
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

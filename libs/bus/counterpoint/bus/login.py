"""A single attempt to log in on the bus, and the meaning of its failure."""

import ssl
from collections.abc import Mapping
from typing import Any

import nats
import nats.errors
from nats.aio.client import Client

from counterpoint.bus.check_result import CheckResult
from counterpoint.bus.settings import BusSettings
from counterpoint.proto import subjects

CHECK = "nats"
ACCOUNTS_REMEDY = "include the accounts of `counterpoint nats accounts` in its configuration"
_CERTIFICATES = (
    "set `verify_and_map: true` in its `tls` block, include the accounts of "
    "`counterpoint nats accounts --certificates`, and log in with a certificate whose DNS name is the user"
)
UNREACHABLE = (nats.errors.Error, OSError, ValueError)
"""Errors of a client that was not let in."""
_TIMEOUT_S = 5


async def connect_once(settings: BusSettings, login: Mapping[str, Any]) -> Client:
    """Connect without a second attempt, and raise the first error of the server or the connection."""
    failures: list[Exception] = []

    async def failed(error: Exception) -> None:
        failures.append(error)

    try:
        return await nats.connect(
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
    except nats.errors.NoServersError:
        if failures:
            raise failures[-1] from None
        raise


def may_answer_later(settings: BusSettings, error: Exception) -> bool:
    """Whether a server may let the client in later without a change of the login or the files."""
    return isinstance(error, nats.errors.Error | OSError) and not _is_refusal(error) and not _is_tls(settings, error)


def unreachable(settings: BusSettings, error: BaseException) -> CheckResult:
    """Return the finding about a server that did not let a client in, with what to do."""
    where = f"{settings.nats_url}: {str(error) or type(error).__name__}"
    if _is_refusal(error):
        by_certificate = settings.nats_password is None and settings.nats_creds is None
        return CheckResult.failed(
            CHECK, f"{where} (login {settings.nats_user})", _CERTIFICATES if by_certificate else ACCOUNTS_REMEDY
        )
    if _is_tls(settings, error):
        remedy = (
            "name the CA of its certificate by COUNTERPOINT_NATS_CA, an absolute path, and its host as certified; "
            "a client certificate that it asks for by COUNTERPOINT_NATS_CERT and _KEY"
        )
        return CheckResult.failed(CHECK, where, remedy)
    return CheckResult.failed(CHECK, where, "start the server, or correct COUNTERPOINT_NATS_URL")


def _is_refusal(error: BaseException) -> bool:
    text = str(error).lower()
    return "authorization" in text or "authentication" in text


def _is_tls(settings: BusSettings, error: BaseException) -> bool:
    # Of a client without the certificate that it asks for, a server only closes the connection.
    closed = (
        isinstance(error, ConnectionResetError | BrokenPipeError | nats.errors.UnexpectedEOF)
        and settings.nats_ca is not None
    )
    text = str(error).lower()
    return closed or isinstance(error, ssl.SSLError | FileNotFoundError) or "certificate" in text or "tls" in text

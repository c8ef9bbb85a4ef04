"""Checks of configured servers: whether they answer, with TLS if their URL says so."""

import asyncio
import re
import ssl
from collections.abc import Iterable, Mapping
from urllib.error import HTTPError, URLError
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import Request, urlopen

from counterpoint.bus.check_result import CheckResult, Level
from counterpoint.local.credentials import Credentials
from counterpoint.local.doctor.jobs import examine_nats, examine_postgres
from counterpoint.local.postgres import PostgresUrls
from counterpoint.local.settings import LocalSettings
from counterpoint.proto.errors import ErrorCode, Permanent, Problem

_TIMEOUT_S = 5.0
_PORTS = {"http": 80, "https": 443, "redis": 6379, "rediss": 6379}
_TLS = frozenset({"https", "rediss"})
_HTTP_SERVERS = re.compile(r"COUNTERPOINT_SEARCH_URL|(?!COUNTERPOINT_)[A-Z0-9_]+_(?:API_BASE|BASE_URL)")
_NO_ANSWER = (OSError, TimeoutError, ssl.SSLError, ValueError)


async def examine_external(
    settings: LocalSettings, credentials: Credentials, inherited: Mapping[str, str]
) -> list[CheckResult]:
    """Check the external engines that replace embedded ones."""
    checks = []
    if settings.nats_url:
        creds = settings.nats_creds
        checks.append(examine_nats(settings.nats_url, creds, credentials, settings.streams_bytes, inherited))
    if settings.postgres_url:
        urls = PostgresUrls.of(settings.postgres_url, credentials.postgres)
        checks.append(examine_postgres(urls, credentials, inherited))
    if settings.valkey_url:
        checks.append(_valkey(settings.valkey_url))
    if qdrant := inherited.get("COUNTERPOINT_QDRANT_URL"):
        checks.append(_qdrant(qdrant, inherited.get("COUNTERPOINT_QDRANT_API_KEY")))
    return [finding for found in await asyncio.gather(*checks) for finding in found]


def refuse_unfit(findings: Iterable[CheckResult], code: ErrorCode = ErrorCode.ENGINE_UNFIT) -> None:
    """Raise `Permanent` with each finding that prevents a start."""
    unfit = tuple(
        Problem(field=finding.check, problem=f"{finding.detail}; {finding.remedy}")
        for finding in findings
        if finding.level == Level.FAILED
    )
    if unfit:
        raise Permanent(code, unfit)


async def examine_http_servers(inherited: Mapping[str, str]) -> list[CheckResult]:
    """Check that the search server and model providers accept connections; nothing is sent to them."""
    named = [(name, url) for name, url in inherited.items() if url and _HTTP_SERVERS.fullmatch(name)]
    return list(await asyncio.gather(*(_accepts(name, url) for name, url in sorted(named))))


async def _accepts(name: str, url: str) -> CheckResult:
    where = _without_login(url)
    try:
        _, writer = await asyncio.wait_for(_connect(url), _TIMEOUT_S)
    except _NO_ANSWER as error:
        return CheckResult.warning(name, f"{where}: {_reason(error)}", f"start the server, or correct {name}")
    writer.close()
    return CheckResult.ok(name, f"{where} accepts connections")


async def _valkey(url: str) -> list[CheckResult]:
    """Log in and ask for the version."""
    parts, check = urlsplit(url), "valkey"
    where = _without_login(url)
    login = [unquote(part) for part in (parts.username, parts.password) if part]
    commands = [["AUTH", *login]] if parts.password else []
    request = b"".join(_resp(command) for command in (*commands, ["INFO", "server"], ["QUIT"]))
    try:
        reader, writer = await asyncio.wait_for(_connect(url), _TIMEOUT_S)
        writer.write(request)
        reply = await asyncio.wait_for(reader.read(), _TIMEOUT_S)
        writer.close()
    except _NO_ANSWER as error:
        return [
            CheckResult.failed(
                check, f"{where}: {_reason(error)}", "start the server, or correct COUNTERPOINT_VALKEY_URL"
            )
        ]
    text = reply.decode(errors="replace")
    if refused := re.search(r"^-(.*)$", text, re.MULTILINE):
        return [
            CheckResult.failed(check, f"{where}: {refused[1].strip()}", "correct the login in COUNTERPOINT_VALKEY_URL")
        ]
    if (version := re.search(r"(valkey|redis)_version:(\S+)", text)) is None:
        remedy = "name a Valkey or Redis server by COUNTERPOINT_VALKEY_URL, with rediss:// if it speaks TLS"
        return [CheckResult.failed(check, f"{where}: the answer is not that of Valkey", remedy)]
    return [CheckResult.ok(check, f"{where}: {version[1]} {version[2]}")]


async def _qdrant(url: str, api_key: str | None) -> list[CheckResult]:
    check, where = "qdrant", _without_login(url)
    remedy = "start the server, or correct COUNTERPOINT_QDRANT_URL and COUNTERPOINT_QDRANT_API_KEY"
    headers = {"api-key": api_key} if api_key else {}

    def ask() -> None:
        with urlopen(Request(f"{url.rstrip('/')}/collections", headers=headers), timeout=_TIMEOUT_S):
            pass

    try:
        await asyncio.to_thread(ask)
    except (HTTPError, URLError, *_NO_ANSWER) as error:
        return [CheckResult.failed(check, f"{where}: {_reason(error)}", remedy)]
    return [CheckResult.ok(check, where)]


async def _connect(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(url)
    ca = parse_qs(parts.query).get("ssl_ca_certs", [None])[-1]
    tls = ssl.create_default_context(cafile=ca) if parts.scheme in _TLS else None
    return await asyncio.open_connection(parts.hostname, parts.port or _PORTS[parts.scheme], ssl=tls)


def _resp(command: list[str]) -> bytes:
    words = [word.encode() for word in command]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def _without_login(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__

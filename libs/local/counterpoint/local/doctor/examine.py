"""All checks of `counterpoint doctor`, with or without a running stack."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from counterpoint.bus.check_result import CheckResult, Level
from counterpoint.local.credentials import Credentials, read_credentials
from counterpoint.local.doctor.jobs import examine_nats, examine_postgres
from counterpoint.local.doctor.machine import (
    examine_folder,
    examine_listening,
    examine_machine,
    examine_ports,
    examine_programs,
)
from counterpoint.local.doctor.servers import examine_external, examine_http_servers
from counterpoint.local.endpoints import read_endpoints
from counterpoint.local.postgres import PostgresUrls
from counterpoint.local.settings import LocalSettings
from counterpoint.local.state_file import read_state
from counterpoint.local.up import Status, status
from counterpoint.proto.errors import Permanent

_LOGS = "see the log of the process in logs/ of the data folder"


def examine(data_dir: Path, environ: Mapping[str, str]) -> list[CheckResult]:
    """Check everything. Changes nothing."""
    findings = examine_machine()
    try:
        settings = LocalSettings()
    except (ValidationError, Permanent) as wrong:
        return [
            *findings,
            CheckResult.failed("settings", str(wrong), "correct the variable, or install the missing package"),
        ]
    folder = examine_folder(data_dir, settings)
    findings += [*examine_programs(settings), *folder]
    if folder[0].level == Level.FAILED:
        return findings
    try:
        credentials = read_credentials(data_dir / "secrets.json")
    except Permanent as damaged:
        return [*findings, CheckResult.failed("secrets", str(damaged), "restore secrets.json from a backup")]
    state = status(data_dir)
    listening = examine_listening(environ)
    findings += listening
    if state.running:
        findings += _stack(state)
    elif not any(finding.level == Level.FAILED for finding in listening):
        findings += examine_ports(environ)
    return findings + asyncio.run(_servers(data_dir, settings, credentials, state, environ))


async def _servers(
    data_dir: Path, settings: LocalSettings, credentials: Credentials | None, state: Status, environ: Mapping[str, str]
) -> list[CheckResult]:
    """Check the external engines, the embedded ones while they run, and other configured servers."""
    known = (credentials or Credentials.make()).with_nats_users(("provisioner",))
    found = await examine_external(settings, known, environ)
    if state.running and state.services:
        if settings.nats_url is None:
            embedded = read_endpoints(data_dir).nats
            found += await examine_nats(embedded, None, known, settings.streams_bytes, environ)
        if settings.postgres_url is None:
            server = f"postgresql://127.0.0.1:{read_state(data_dir / 'state.json').ports['postgres']}"
            found += await examine_postgres(PostgresUrls.of(server, known.postgres), known, environ)
    return found + await examine_http_servers(environ)


def _stack(state: Status) -> list[CheckResult]:
    """Check the parts of a running stack."""
    if not state.services:
        return [CheckResult.warning("stack", f"process {state.pid} is starting", "run this again when it is ready")]
    findings = []
    for name, ready in state.services.items():
        waits = ", ".join(state.waiting_for.get(name, ())) or "it does not answer"
        findings.append(
            CheckResult.ok(f"service {name}", "ready")
            if ready
            else CheckResult.failed(f"service {name}", f"not ready: {waits}", _LOGS)
        )
    for name, alive in state.engines.items():
        findings.append(
            CheckResult.ok(f"engine {name}", "runs")
            if alive
            else CheckResult.failed(f"engine {name}", "has ended", _LOGS)
        )
    return findings

"""Checks of the environment: variables that nothing reads, and values that the settings of a service refuse."""

import asyncio
import difflib
import json
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from counterpoint.bus.check_result import CheckResult, parse_results
from counterpoint.local.credentials import Credentials
from counterpoint.local.forwarded import COMMON, FORWARDED
from counterpoint.local.listen_addresses import ListenAddresses
from counterpoint.local.postgres import PostgresUrls
from counterpoint.local.service import NATS_USERS, SERVICES, ServiceParameters, base_environment, environment
from counterpoint.local.settings import LocalSettings

_PREFIX = "COUNTERPOINT_"
OF_COMMAND = ("URL", "TOKEN", "CA", "DATA_DIR", "BACKUP_PASSPHRASE", "PROJECT")
"""Variables of the command itself, without the prefix."""
_TIMEOUT_S = 60.0
_CHECK = "variables"


def examine_names(environ: Mapping[str, str]) -> list[CheckResult]:
    """Check that each variable with our prefix is read by something."""
    known = {*COMMON, *(name for names in FORWARDED.values() for name in names), *OF_COMMAND}
    known |= {field.name.upper() for field in fields(ListenAddresses)}
    known |= {name.upper() for name in LocalSettings.model_fields}
    own = {f"{_PREFIX}HEALTH_PORT"}
    own |= {name for service in SERVICES for name in environment(service, _parameters(Path("/")))}
    findings = []
    for name in sorted(environ):
        if not name.startswith(_PREFIX) or name.removeprefix(_PREFIX) in known:
            continue
        if name in own:
            findings.append(CheckResult.warning(_CHECK, f"{name} has no effect: `up` sets it itself", "unset it"))
            continue
        close = difflib.get_close_matches(name.removeprefix(_PREFIX), known, 1)
        remedy = f"set {_PREFIX}{close[0]} if that is meant, else unset it" if close else "unset it"
        findings.append(CheckResult.warning(_CHECK, f"nothing reads {name}", remedy))
    return findings


async def examine_settings(data_dir: Path, environ: Mapping[str, str]) -> list[CheckResult]:
    """Check the settings that each service would get from `up` by the settings class of the service."""
    parameters = _parameters(data_dir, environ)
    given = {
        name: (f"counterpoint.{name}.settings:{name.title()}Settings", environment(name, parameters))
        for name in SERVICES
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "counterpoint.bus.settings_check"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=base_environment(environ),
        cwd="/",  # as services, so that a relative path fails here too
    )
    try:
        output, errors = await asyncio.wait_for(process.communicate(json.dumps(given).encode()), _TIMEOUT_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        return [CheckResult.failed("settings", f"the check took longer than {_TIMEOUT_S:g} s", "report it")]
    if process.returncode != 0:
        reason = errors.decode(errors="replace").strip().rpartition("\n")[2]
        return [CheckResult.failed("settings", f"the check ended with: {reason}", "report it")]
    return parse_results(output.decode())


def _parameters(data_dir: Path, environ: Mapping[str, str] | None = None) -> ServiceParameters:
    """Return parameters with addresses and secrets of the right form, which the check does not use."""
    credentials = Credentials.make().with_nats_users(NATS_USERS)
    server = PostgresUrls.of("postgresql://127.0.0.1:1", credentials.postgres)
    return ServiceParameters(
        data_dir=data_dir.absolute(),
        nats_url="nats://127.0.0.1:1",
        postgres=server,
        valkey_url="redis://127.0.0.1:1",
        http_port=1,
        lineage_port=1,
        gateway_port=1,
        credentials=credentials,
        inherited=environ or {},
        listeners={"router": 3, "lineage": 3} if environ is None else {},
    )

"""Checks of NATS and PostgreSQL, which run in processes of the members that know these engines."""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from counterpoint.bus.check_result import CheckResult, Level, parse_results
from counterpoint.local.credentials import Credentials
from counterpoint.local.postgres import PostgresUrls
from counterpoint.local.service import NATS_TLS, NATS_USERS, base_environment, creds_file, nats_login

_TIMEOUT_S = 60.0


async def examine_nats(
    url: str,
    creds: Path | None,
    credentials: Credentials,
    streams_bytes: int | None,
    inherited: Mapping[str, str],
) -> list[CheckResult]:
    """Check a NATS server with the login of the provisioner, and that every user's credentials file can be read."""
    if creds is not None and (found := _credentials_files(creds)).level == Level.FAILED:
        return [found]
    env = nats_login(url, "provisioner", credentials, creds)
    if streams_bytes is not None:
        env["COUNTERPOINT_STREAMS_BYTES"] = str(streams_bytes)
    env |= {name: inherited[name] for each in NATS_TLS if inherited.get(name := f"COUNTERPOINT_{each}")}
    return await _run("nats", ("counterpoint.bus.preflight",), env, inherited)


def _credentials_files(folder: Path) -> CheckResult:
    check, files = "nats credentials", [creds_file(folder, user) for user in NATS_USERS]
    missing = [path.name for path in files if not os.access(path, os.R_OK)]
    if missing or not folder.is_absolute():
        detail = f"{folder} is not an absolute path" if not missing else f"{folder} lacks {', '.join(missing)}"
        remedy = (
            "name the folder that the commands of `counterpoint nats accounts --nsc` write by COUNTERPOINT_NATS_CREDS"
        )
        return CheckResult.failed(check, detail, remedy)
    return CheckResult.ok(check, f"{len(files)} files in {folder}")


async def examine_postgres(
    urls: PostgresUrls, credentials: Credentials, inherited: Mapping[str, str], *, empty: bool = False
) -> list[CheckResult]:
    """Check a PostgreSQL server with the superuser's login; with those of the roles if they exist already.

    With `empty` there is also a finding `postgres content` about tables: none, ours (a warning), or others.
    """
    env = {
        "COUNTERPOINT_POSTGRES_OWNER_URL": urls.owner,
        "COUNTERPOINT_POSTGRES_URL": urls.memory,
        "COUNTERPOINT_INSTALLATION": credentials.installation,
    }
    if not urls.prepared:
        env["COUNTERPOINT_POSTGRES_ADMIN_URL"] = urls.admin
    module = ("counterpoint.memory.record.preflight", *(["--empty"] if empty else []))
    return await _run("postgres", module, env, inherited)


async def _run(
    check: str, module: tuple[str, ...], env: dict[str, str], inherited: Mapping[str, str]
) -> list[CheckResult]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        *module,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=base_environment(inherited) | env,
        cwd="/",  # as services, so that a relative path fails here too
    )
    try:
        output, errors = await asyncio.wait_for(process.communicate(), _TIMEOUT_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        return [
            CheckResult.failed(
                check, f"the check took longer than {_TIMEOUT_S:g} s", "see whether the server is overloaded"
            )
        ]
    if process.returncode != 0:
        reason = errors.decode(errors="replace").strip().rpartition("\n")[2]
        return [CheckResult.failed(check, f"the check ended with: {reason}", "report it")]
    return parse_results(output.decode())

"""Checks of NATS and PostgreSQL, which run in processes of the members that know these engines."""

import asyncio
import sys
from collections.abc import Mapping

from counterpoint.bus.check_result import CheckResult, parse_results
from counterpoint.local.credentials import Credentials
from counterpoint.local.postgres import PostgresUrls
from counterpoint.local.service import base_environment

_TIMEOUT_S = 60.0


async def examine_nats(
    url: str, credentials: Credentials, streams_bytes: int | None, inherited: Mapping[str, str]
) -> list[CheckResult]:
    """Check a NATS server with the login of the provisioner."""
    env = {
        "COUNTERPOINT_NATS_URL": url,
        "COUNTERPOINT_NATS_USER": "provisioner",
        "COUNTERPOINT_NATS_PASSWORD": credentials.nats["provisioner"],
    }
    if streams_bytes is not None:
        env["COUNTERPOINT_STREAMS_BYTES"] = str(streams_bytes)
    if ca := inherited.get("COUNTERPOINT_NATS_CA"):
        env["COUNTERPOINT_NATS_CA"] = ca
    return await _run("nats", ("counterpoint.bus.preflight",), env, inherited)


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

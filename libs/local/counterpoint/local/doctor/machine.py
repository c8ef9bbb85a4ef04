"""Checks of this machine: Python, the engines' programs, memory, disk, ports and the data folder."""

import os
import platform
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from counterpoint.bus.check_result import CheckResult
from counterpoint.local.disk_space import MIB, reserve_streams
from counterpoint.local.listen_addresses import exposure, listen_addresses
from counterpoint.local.settings import LocalSettings
from counterpoint.local.state_file import RESTORING, is_free
from counterpoint.proto.errors import Permanent

PYTHONS = (3, 11), (3, 13)
"""The oldest and the newest supported Python."""
MEMORY_BYTES = 1 << 30
"""Memory that should be available before a start; five services and three engines take about 350 MB."""
_INSTALL = "install it: pip install 'counterpoint[server]'"
_TIMEOUT_S = 10.0


def examine_machine() -> list[CheckResult]:
    """Check Python and the available memory."""
    return [_python(), *_memory()]


def examine_programs(settings: LocalSettings) -> list[CheckResult]:
    """Check that the program of each embedded engine runs, and its version."""
    programs = []
    if settings.nats_url is None:
        programs.append(("nats", settings.nats_bin, "COUNTERPOINT_NATS_BIN"))
    if settings.postgres_url is None:
        programs.append(("postgres", settings.postgres_bin_dir / "postgres", "COUNTERPOINT_POSTGRES_BIN_DIR"))
    if settings.valkey_url is None:
        programs.append(("valkey", settings.valkey_bin, "COUNTERPOINT_VALKEY_BIN"))
    found = [_program(*program) for program in programs]
    return [*found, _vector(settings.postgres_bin_dir)] if settings.postgres_url is None else found


def examine_folder(data_dir: Path, settings: LocalSettings) -> list[CheckResult]:
    """Check the rights of the data folder and the free space on its disk. Creates nothing."""
    existing = next(folder for folder in (data_dir.absolute(), *data_dir.absolute().parents) if os.path.exists(folder))
    if not existing.is_dir():
        return [CheckResult.failed("data folder", f"{existing} is a file", "choose another folder by --data-dir")]
    if (denied := _denied(data_dir, existing)) is not None:
        remedy = f"run this as its owner, or choose another folder by --data-dir: {data_dir}"
        return [CheckResult.failed("data folder", f"{denied} cannot be read and written", remedy)]
    if (data_dir / RESTORING).exists():
        remedy = "run the restore again, or delete the folder"
        return [CheckResult.failed("data folder", f"a restore into {data_dir} was interrupted", remedy)]
    findings = [CheckResult.ok("data folder", str(data_dir))]
    for private in (data_dir, data_dir / "secrets.json"):
        if private.exists() and stat.S_IMODE(private.stat().st_mode) & 0o077:
            findings.append(
                CheckResult.warning("data folder", f"other users can read {private}", f"chmod go= {private}")
            )
    return [*findings, _disk(data_dir, existing, settings)]


def examine_listening(environ: Mapping[str, str]) -> list[CheckResult]:
    """Check the addresses and the certificate of the APIs."""
    try:
        given = listen_addresses(environ)
    except Permanent as wrong:
        return [CheckResult.failed("listening", str(wrong), "correct the variable")]
    if warning := exposure(given):
        return [CheckResult.warning("listening", *warning)]
    return []


def examine_ports(environ: Mapping[str, str]) -> list[CheckResult]:
    """Check that the configured ports are free. For a stack that does not run, with legal settings."""
    given = listen_addresses(environ)
    wanted = {
        "http": (given.http_host, given.http_port),
        "lineage": (given.lineage_host, given.lineage_port),
        "gateway": (given.gateway_host, given.gateway_port),
    }
    return [
        CheckResult.ok(f"port {name}", f"{port} on {host} is free")
        if is_free(port, host)
        else CheckResult.failed(
            f"port {name}", f"{port} on {host} is in use or cannot be bound", f"set COUNTERPOINT_{name.upper()}_PORT"
        )
        for name, (host, port) in wanted.items()
        if port
    ]


def _python() -> CheckResult:
    oldest, newest = PYTHONS
    detail = f"{platform.python_implementation()} {platform.python_version()}"
    if oldest <= sys.version_info[:2] <= newest:
        return CheckResult.ok("python", detail)
    versions = f"Python {'.'.join(map(str, oldest))} to {'.'.join(map(str, newest))}"
    return CheckResult.failed("python", detail, f"install it with {versions}")


def _memory() -> list[CheckResult]:
    """Return the available memory; nothing where the kernel does not tell."""
    information = Path("/proc/meminfo")
    if not information.exists():
        return []
    rows = dict(line.split(":") for line in information.read_text().splitlines())
    available = int(rows["MemAvailable"].split()[0]) * 1024
    detail = f"{available // MIB} MiB available"
    if available >= MEMORY_BYTES:
        return [CheckResult.ok("memory", detail)]
    return [CheckResult.warning("memory", detail, f"free memory until {MEMORY_BYTES // MIB} MiB are available")]


def _program(name: str, program: Path, variable: str) -> CheckResult:
    try:
        shown = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=True, timeout=_TIMEOUT_S
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return CheckResult.failed(
            f"program {name}", f"{program}: {error}", f"{_INSTALL}, or name another by {variable}"
        )
    return CheckResult.ok(f"program {name}", shown.strip().partition("\n")[0])


def _vector(bin_dir: Path) -> CheckResult:
    """Check that pgvector is beside the PostgreSQL that would be started."""
    places = [bin_dir.parent / "share" / folder / "extension" for folder in ("postgresql", "")]
    if any((place / "vector.control").is_file() for place in places):
        return CheckResult.ok("program pgvector", "is installed beside PostgreSQL")
    try:
        shared = subprocess.run(
            [bin_dir / "pg_config", "--sharedir"], capture_output=True, text=True, check=True, timeout=_TIMEOUT_S
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        shared = ""
    if shared and (Path(shared) / "extension" / "vector.control").is_file():
        return CheckResult.ok("program pgvector", "is installed beside PostgreSQL")
    return CheckResult.failed("program pgvector", f"PostgreSQL in {bin_dir} has no pgvector", _INSTALL)


def _denied(data_dir: Path, existing: Path) -> Path | None:
    """Return the folder, or an entry of the data folder, that this user may not read and write."""
    if not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
        return existing
    content = data_dir.iterdir() if data_dir.is_dir() else ()
    return next((path for path in content if not os.access(path, os.R_OK | os.W_OK)), None)


def _disk(data_dir: Path, existing: Path, settings: LocalSettings) -> CheckResult:
    if settings.nats_url is not None and settings.postgres_url is not None:
        return CheckResult.ok("disk", f"{shutil.disk_usage(existing).free // MIB} MiB free; the data is elsewhere")
    try:
        streams = reserve_streams(data_dir if data_dir.is_dir() else existing, settings.streams_bytes)
    except Permanent as full:
        return CheckResult.failed(
            "disk", "; ".join(problem.problem for problem in full.problems), "free space, or use another disk"
        )
    free = shutil.disk_usage(existing).free // MIB
    return CheckResult.ok("disk", f"{free} MiB free, {streams // MIB} MiB for the streams of the bus")

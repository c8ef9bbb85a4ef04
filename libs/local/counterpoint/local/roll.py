"""Rolls: the services of a running stack replaced one by one, on request of another process.

The request is a file in the data folder, of which a signal tells the supervisor. It answers with a file beside it.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from uuid import uuid4

import structlog
from pydantic import BaseModel, ConfigDict, ValidationError

from counterpoint.local.lock import is_locked
from counterpoint.local.private_files import write_private
from counterpoint.local.service import SERVICES, ServiceName
from counterpoint.local.stack import Stack
from counterpoint.local.state_file import read_state
from counterpoint.proto.errors import CounterpointError, ErrorCode, Permanent, Problem, Transient

log = structlog.get_logger(__name__)

SIGNAL = signal.SIGUSR1
_POLL_S = 0.05


class RollRequest(BaseModel):
    """The services to replace, in order. `migrate`: migrate the database before. `new_passwords`: each gets the
    password of the bus that the credentials file has for it, as does everyone else at the end."""

    model_config = ConfigDict(frozen=True)

    id: str
    services: tuple[ServiceName, ...] = SERVICES
    migrate: bool = True
    new_passwords: bool = False


class RollReport(BaseModel):
    """Progress of a roll: its finished stages, and the reason if it ended early."""

    model_config = ConfigDict(frozen=True)

    id: str
    stages: tuple[str, ...] = ()
    is_over: bool = False
    failed: str | None = None


class Roller:
    """Rolls a stack whenever the supervisor is signalled, one request after the other."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._requested = asyncio.Event()

    def request(self) -> None:
        """Take note of a signal."""
        self._requested.set()

    async def run(self) -> None:
        """Perform requests until cancelled."""
        request_path, report_path = _paths(self._stack.data_dir)
        while True:
            await self._requested.wait()
            self._requested.clear()
            try:
                request = RollRequest.model_validate_json(request_path.read_bytes())
            except (OSError, ValidationError) as error:
                log.warning("roll.unreadable", reason=type(error).__name__)
                continue
            request_path.unlink()
            report = RollReport(id=request.id)
            try:
                async for stage in self._stages(request):
                    log.info("roll.stage", stage=stage)
                    report = report.model_copy(update={"stages": (*report.stages, stage)})
                    write_private(report_path, report.model_dump_json())
                report = report.model_copy(update={"is_over": True})
            except (CounterpointError, OSError) as error:
                log.error("roll.failed", reason=str(error).partition("\n")[0])
                report = report.model_copy(update={"is_over": True, "failed": str(error)})
            write_private(report_path, report.model_dump_json())

    async def _stages(self, request: RollRequest) -> AsyncIterator[str]:
        """Perform a request; yield the name of each stage that is finished."""
        if request.migrate:
            await self._stack.migrate()
            yield "migrate"
        for name in request.services:
            await self._stack.replace(name, new_password=request.new_passwords)
            yield name
        if request.new_passwords:
            await self._stack.change_other_passwords()
            yield "other logins"


def roll(
    data_dir: Path,
    services: tuple[ServiceName, ...] = SERVICES,
    *,
    migrate: bool = True,
    new_passwords: bool = False,
    progress: Callable[[str], None] = lambda stage: None,
) -> tuple[str, ...]:
    """Have the supervisor of a stack replace services, and wait. Return the finished stages.

    Raises `Transient` if no stack runs, or if a service does not become ready, and `Permanent` during another roll.
    """
    request = RollRequest(id=uuid4().hex, services=services, migrate=migrate, new_passwords=new_passwords)
    request_path, report_path = _paths(data_dir)
    state = read_state(data_dir / "state.json")
    supervisor = state.supervisor if is_locked(data_dir) else None
    if supervisor is None or not (data_dir / "endpoints.json").exists():
        raise Transient(f"no stack is ready on {data_dir}")
    if not state.rolls:
        problem = "was started by an earlier release, which cannot replace services: run `counterpoint down`, then `up`"
        raise Permanent(ErrorCode.RELEASE_UNFIT, (Problem(field=str(data_dir), problem=problem),))
    if request_path.exists():
        problem = "a roll is under way: wait for its end"
        raise Permanent(ErrorCode.CONFLICT, (Problem(field=str(data_dir), problem=problem),))
    write_private(request_path, request.model_dump_json())
    os.kill(supervisor.pid, SIGNAL)
    shown = 0
    while supervisor.is_alive():
        report = _report(report_path)
        if report is not None and report.id == request.id:
            for stage in report.stages[shown:]:
                progress(stage)
            shown = len(report.stages)
            if report.failed is not None:
                raise Transient(f"the roll ended after {', '.join(report.stages) or 'nothing'}: {report.failed}")
            if report.is_over:
                return report.stages
        time.sleep(_POLL_S)
    request_path.unlink(missing_ok=True)
    raise Transient("the supervisor has ended")


def _report(path: Path) -> RollReport | None:
    try:
        return RollReport.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def _paths(data_dir: Path) -> tuple[Path, Path]:
    return data_dir / "roll-request.json", data_dir / "roll-report.json"

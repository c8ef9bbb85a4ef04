"""Results of checks of an environment, each with what to do."""

import json
from collections.abc import Iterable
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

CLOCK_S = 2.0
"""Tolerated difference of two clocks, in seconds. Tokens and deadlines are compared across machines."""


class Level(StrEnum):
    """The result of a check. A warning does not prevent a start."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


class CheckResult(BaseModel):
    """The result of one check; `remedy` says what to do unless it is ok."""

    model_config = ConfigDict(frozen=True)

    check: str
    level: Level
    detail: str
    remedy: str = ""

    @classmethod
    def ok(cls, check: str, detail: str) -> "CheckResult":
        """Return a check that passed."""
        return cls(check=check, level=Level.OK, detail=detail)

    @classmethod
    def warning(cls, check: str, detail: str, remedy: str) -> "CheckResult":
        """Return a check that found a risk."""
        return cls(check=check, level=Level.WARNING, detail=detail, remedy=remedy)

    @classmethod
    def failed(cls, check: str, detail: str, remedy: str) -> "CheckResult":
        """Return a check that found an obstacle."""
        return cls(check=check, level=Level.FAILED, detail=detail, remedy=remedy)


def print_results(findings: Iterable[CheckResult]) -> None:
    """Print findings as lines of JSON, for the process that started this one."""
    for finding in findings:
        print(finding.model_dump_json(), flush=True)


def parse_results(text: str) -> list[CheckResult]:
    """Return the findings that another process printed; its other lines are logs."""
    found = []
    for line in text.splitlines():
        if line.startswith("{"):
            value = json.loads(line)
            if value.keys() >= {"check", "level", "detail"}:
                found.append(CheckResult.model_validate(value))
    return found


def clock_result(check: str, ahead_s: float) -> CheckResult:
    """Return the finding about a server's clock that is `ahead_s` seconds ahead of this machine's."""
    detail = f"its clock differs from this machine's by {abs(ahead_s):.1f} s"
    if abs(ahead_s) <= CLOCK_S:
        return CheckResult.ok(check, detail)
    return CheckResult.warning(check, detail, "synchronise both clocks, for example by chrony or systemd-timesyncd")

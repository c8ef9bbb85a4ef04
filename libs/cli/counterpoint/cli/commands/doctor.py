"""`counterpoint doctor`: check the machine and what is configured."""

import os
from typing import TYPE_CHECKING

from counterpoint.cli.command import Panel, command
from counterpoint.cli.data_folder import quiet_logs, reject_url
from counterpoint.cli.errors import Exit
from counterpoint.cli.session import CommandSession

if TYPE_CHECKING:
    from counterpoint.bus.check_result import CheckResult

_MARKS = {"ok": "✔", "warning": "!", "failed": "✘"}


@command("doctor", Panel.OPERATE, "counterpoint doctor")
def doctor(session: CommandSession) -> Exit:
    """Check Python, engines, disk, memory, ports, rights, clocks and configured servers; say what to do.

    Changes nothing. Exit code 1: something prevents a start.
    """
    from counterpoint.local.doctor.examine import examine

    reject_url(session)
    quiet_logs()
    findings = examine(session.place.folder(), os.environ)
    failed = any(finding.level == "failed" for finding in findings)
    report = {"ok": not failed, "checks": [finding.model_dump(mode="json") for finding in findings]}
    session.show(report, lambda: "\n".join(map(_line, findings)))
    return Exit.FAILED if failed else Exit.DONE


def _line(finding: "CheckResult") -> str:
    remedy = f"\n    → {finding.remedy}" if finding.remedy else ""
    return f"{_MARKS[finding.level]} {finding.check}: {finding.detail}{remedy}"

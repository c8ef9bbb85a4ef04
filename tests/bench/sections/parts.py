"""Benchmarks of their own that are part of the one of memory: the line of a task, and the audit log."""

from pathlib import Path

from bench import audit, line
from bench.measure import Report
from bench.sections.size import Size


async def line_measured(folder: Path, size: Size, report: Report) -> None:
    """The rows of `bench line`; its size is fixed."""
    _add(report, await line.run(folder))


async def audit_measured(folder: Path, size: Size, report: Report) -> None:
    """The rows of `bench audit`. Its target is one for a million leaves."""
    _add(report, await audit.run(folder, size.leaves, 10))


def _add(report: Report, part: Report) -> None:
    report.measures += part.measures
    report.loads += part.loads
